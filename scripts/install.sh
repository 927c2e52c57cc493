#!/bin/sh
# Sets up .venv for `make`, with the extras that are given. By hand it is: make a virtual environment, then
#   pip install -c constraints.txt -e '.[EXTRAS]' && pip install --no-deps parlai==1.7.2
# The rest of this script finds a Python, shows progress, and turns a failure into a sentence that says what to do.
set -eu
cd "$(dirname "$0")/.."

log=.venv/install.log

fail() {
    printf '\nSet-up failed: %s\n' "$1" >&2
    exit 1
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

# Prints the command of a Python that is new enough: the one the user named, or else the first that works.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.10 or newer; name one that is: make install PYTHON=python3.12"
        echo "$PYTHON"
        return
    fi
    for python in python3 python3.13 python3.12 python3.11 python3.10; do
        if new_enough "$python"; then
            echo "$python"
            return
        fi
    done
    fail "no Python 3.10 or newer was found; install one, or say where it is: make install PYTHON=/path/to/python3"
}

make_venv() {
    python=$(find_python)
    # Asked first, because Debian's python3 without it leaves half a .venv behind.
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments; install its venv module (Debian and Ubuntu: apt install python3-venv)"
    echo "[1/4] Making .venv with $("$python" --version)"
    "$python" -m venv .venv || fail "$python could not make .venv, for the reason above; remove it (rm -r .venv) and run again"
}

# pip_install ARGUMENTS...: silent; the log is kept for the case that it fails.
# --no-warn-conflicts: with ParlAI from an earlier run in .venv, pip would complain of ParlAI's pins, which never match.
# --no-compile: most modules of these libraries are never imported; Python compiles the others when they are.
pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --no-compile "$@" >"$log" 2>&1 || explain
}

# Says what to do about pip's failure. The order matters: with no network pip also says "no matching distribution".
explain() {
    tail -n 15 "$log" >&2
    if grep -qi 'no space left\|disk quota' "$log"; then
        fail "the disk is full; free about 10 GB for $(pwd)/.venv and the temporary folder (TMPDIR moves that), then run again"
    elif grep -qi 'connection broken\|connection error\|timed out\|HTTP error\|client error\|server error' "$log"; then
        fail "the package registry did not answer; check the network and pip's settings (pip config list), then run again, which resumes the set-up"
    elif grep -qi 'no matching distribution\|ResolutionImpossible' "$log"; then
        fail "the package registry has nothing for $(.venv/bin/python --version) on this machine that fits; remove .venv (rm -r .venv) and try another Python: make install PYTHON=python3.12"
    fi
    fail "pip stopped for the reason above (all it said: $log)"
}

if [ -e .venv ]; then
    # Never deleted here: it may hold somebody's work.
    { new_enough .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; } ||
        fail ".venv exists but has no Python 3.10 or newer with pip; remove it (rm -r .venv) and run again"
    echo "[1/4] Using .venv with $(.venv/bin/python --version)"
else
    make_venv
fi

echo "[2/4] Installing PyTorch (by far the largest download: minutes, and up to 6 GB on disk where it comes with CUDA)"
pip_install -c constraints.txt torch
echo "[3/4] Installing polyagents and the other libraries ($1)"
pip_install -c constraints.txt -e ".[$1]"
.venv/bin/python scripts/link_tree.py
echo "[4/4] Installing ParlAI"
pip_install --no-deps parlai==1.7.2
