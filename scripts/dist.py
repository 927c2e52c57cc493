"""Make a release, and try it: `make dist`.

dist/ gets the sdist of the files that git tracks, and the wheel built from it. Then each is installed in a virtual
environment of its own, and tried there. It is clean of polyagents, but not of its dependencies: the libraries are
those of the environment that runs this, seen through a .pth file. To download torch twice would take longer than all
else here, and which versions of the libraries fit is another question (CONTRIBUTING.md).
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
INSIDE = ("benchmarks", "tasks", "zoo")  # installed in polyagents, as setup.py says
# All that is installed of benchmarks/: what bench_inference and bench_training need. Other measurements need a clone.
MEASURING = ("__init__", "inference", "measure", "peers", "report", "training")

# Tests: the command starts, training reads a task and its data from the package, and Python ranks.
TRAIN = "train_model -m bi -t polyagents.tasks.convai2:sample -mf M --backbone scratch:tiny --max-train-steps 2"
TRAIN += " --batchsize 4 --validation-every-n-epochs -1 --validation-max-exs 4 --short-final-eval true --loglevel error"
COMMANDS = ("--help", "demo --help", "serve --help", "zoo list", "recipe list", TRAIN)
RANK = """
import polyagents
from polyagents import Ranker
assert len(Ranker.load("M").rank("do you have a dog ?", ["hello", "yes , i have two dogs"])) == 2
print(polyagents.__file__)
"""


def main() -> None:
    """Build, install and try.

    Raises:
        SystemExit: something is missing; what, has been said.
    """
    tracked = [Path(name) for name in output("git", "ls-files", "-z").split("\0") if name and (ROOT / name).exists()]
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        for path in tracked:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / path)
        build(source)
    version = output(sys.executable, "setup.py", "--version").strip()
    for built in sorted(DIST.iterdir()):
        with tempfile.TemporaryDirectory() as folder:
            try_out(built, Path(folder), installed_names(tracked), version)
        print(f"{built.relative_to(ROOT)}: {built.stat().st_size / 1e3:,.0f} kB, installed and tried")


def build(source: Path) -> None:
    """An sdist of a folder, and a wheel of the sdist, which thus has all that an installation needs."""
    make = f"from setuptools import build_meta; build_meta.build_sdist({str(DIST)!r})"
    run(sys.executable, "-c", make, folder=source)
    (sdist,) = DIST.iterdir()
    pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(DIST), str(sdist))


def installed_names(tracked: list[Path]) -> set[str]:
    """The files of our packages, as they are called where they are installed."""
    names = {
        f"polyagents/{path.as_posix()}" if path.parts[0] in INSIDE else path.as_posix()
        for path in tracked
        if path.parts[0] in (*INSIDE, "polyagents")
    }
    measuring = {f"polyagents/benchmarks/{name}.py" for name in MEASURING}
    return {name for name in names if not name.startswith("polyagents/benchmarks/") or name in measuring}


def try_out(built: Path, folder: Path, expected: set[str], version: str) -> None:
    """Install an sdist or a wheel in a new environment, look at what is there, and use it."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    packages = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # --ignore-installed: pip must not change a polyagents among these libraries.
    alone = ("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
    pip("--python", str(python), "install", *alone, str(built))

    there = {path.relative_to(packages).as_posix() for path in (packages / "polyagents").rglob("*") if path.is_file()}
    there = {name for name in there if "__pycache__" not in name}
    if there != expected:
        sys.exit(f"{built.name} lacks {sorted(expected - there)}, and has {sorted(there - expected)} besides")
    command = str(environment / "bin" / "polyagents")
    said = run(command, "--version", folder=work)
    if not said.startswith(f"polyagents {version} ("):
        sys.exit(f"{built.name} calls itself {said!r}, not {version}")
    for arguments in COMMANDS:
        run(command, *arguments.split(), folder=work)
    asked = subprocess.run([python, "-m", "polyagents.benchmarks.walk"], cwd=work, capture_output=True, text=True)
    if asked.returncode != 2 or "in a clone of the repository" not in asked.stderr:
        sys.exit(f"{built.name} does not say that polyagents.benchmarks.walk needs a clone:\n{asked.stderr}")
    imported = run(str(python), "-c", RANK, folder=work).splitlines()[-1]
    if Path(imported) != packages / "polyagents" / "__init__.py":
        sys.exit(f"{built.name} was installed, and {imported} was tried in its place")


def pip(*arguments: str) -> None:
    """Run pip, which is this environment's also where it installs into another one."""
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def output(*command: str) -> str:
    """What a command says, in the checkout."""
    return run(*command, folder=ROOT)


def run(*command: str, folder: Path | None = None) -> str:
    """What a command writes to standard output; it sees no modules of this checkout but those in its folder.

    Raises:
        SystemExit: it failed; all that it said is shown.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
