"""What `make mutants` says in the end: of `mutmut results --all true` on standard input, counts by module."""

import collections
import sys

STATES = ("killed", "survived", "timeout", "no tests", "not checked")
NOTICED = ("killed", "timeout", "caught by type check")


def main() -> None:
    """Print a table: modules, and how many of their mutants were noticed by no test."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in sys.stdin:
        name, _, state = line.strip().rpartition(": ")
        if "__mutmut_" in name:
            counts[name.rpartition(".")[0].replace(".xǁ", "").partition(".x_")[0]][state] += 1
    if not counts:
        sys.exit("There are no results; run  make mutants  without ARGS first.")
    print(f"{'module':44}" + "".join(f"{state:>13}" for state in STATES))
    for module, states in [*sorted(counts.items()), ("all", sum(counts.values(), collections.Counter()))]:
        print(f"{module:44}" + "".join(f"{states[state]:13}" for state in STATES))
    every = sum(counts.values(), collections.Counter())
    tested = sum(count for state, count in every.items() if state not in ("no tests", "not checked"))
    noticed = sum(every[state] for state in NOTICED)
    print(f"{noticed} of {tested} tested mutants were noticed ({noticed / max(tested, 1):.1%}).")
    print("The others:  .venv/bin/mutmut results;  one of them:  .venv/bin/mutmut show NAME;  why: docs/mutants.md")


main()
