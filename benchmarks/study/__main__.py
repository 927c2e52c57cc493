"""The command line: run what is missing of a study, then print and write its report."""

import os
import sys
from collections.abc import Sequence

from polyagents import threads
from polyagents.arguments import CommandParser, positive_int
from polyagents.benchmarks.study import plan, schedule
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.faults import users_fault


def parser() -> CommandParser:
    """Declare the flags."""
    parser = CommandParser("study", "Run a table of (flags x seeds) and report it; docs/studies.md.")
    parser.add_argument("file", help="the study, YAML")
    parser.add_argument("--work", help="folder for logs, and for models that other rows build on")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="what ${NAME} stands for")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    parser.add_argument("--threads", type=positive_int, help="of each run; by default one for each core")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and report; the exit code is 1 if a run failed, 2 if an input cannot work."""
    opt = parser().parse_args(arguments)
    try:
        return study(opt.file, opt.work, opt.set, opt.report, opt.threads)
    except KeyboardInterrupt:
        sys.stderr.write("\nstudy: stopped by Ctrl-C; the same command runs what is missing.\n")
        return 130
    except Exception as error:
        sentence = users_fault(error, "dev")
        if sentence is None:
            raise
        sys.stderr.write(f"study: {sentence}\n")
        return 2


def study(file: str, work: str | None, settings: Sequence[str], only_report: bool, cores: int | None) -> int:
    """Run a study and report it.

    Args:
        work: the folder of logs and models.
        settings: the values of placeholders, as NAME=VALUE.
        cores: the threads of each run; None for all cores.

    Raises:
        InputError: something given cannot work.
    """
    found, name = plan.read(file), os.path.splitext(os.path.basename(file))[0]
    results = os.path.join(os.path.dirname(os.path.abspath(file)), "results", name)
    failed = list[str]()
    if not only_report:
        if work is None:
            raise InputError("Give --work DIR for logs and models, or --report for what is there.")
        if cores is not None:
            os.environ[threads.THREADS] = str(cores)
        threads.choose()  # before anything imports torch; the processes of the runs inherit it
        from polyagents.benchmarks.study.flag_check import check_flags  # imports ParlAI and torch

        values = plan.values_of(settings)
        check_flags(found, values)
        os.makedirs(results, exist_ok=True)
        failed = schedule.carry_out(found, schedule.Places(results, os.path.abspath(work)), values)
    for other in schedule.others_in(results, found):
        say(f"{os.path.join(results, other)} is of a row or seed that {file} does not have any more.")
    for sentence in failed:
        say(sentence)
    from polyagents.benchmarks.study import report  # imports matplotlib

    try:
        print(report.write(name, found, results))
    except report.NothingToReport:
        if failed:
            return 1  # which is said above
        raise
    say(f"Written to {os.path.join(results, 'report.md')}, curves.png and cost.png.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
