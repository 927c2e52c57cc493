"""`polyagents evaluate`: the metrics of a model on a task, with intervals, compared with other models."""

import argparse
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyagents.arguments import flag_of, positive_int
from polyagents.commands import parlai_command
from polyagents.commands.decide import read_options
from polyagents.commands.task_parser import TaskCommandParser, load_with_flags
from polyagents.console import decimals, in_columns
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.own_folder import check_out_file, files_read
from polyagents.zoo.models import our_agent

if TYPE_CHECKING:
    from polyagents.decisions.examples import DecisionExamples

OUT_FILES = {"out": ".json", "trec_run": ".run", "trec_qrels": ".qrels"}  # with the ending of such files


class EvaluateParser(TaskCommandParser):
    """Parses flags of a task and of models; `evaluated` has ParlAI's options for each of the models."""

    def parse_with_task(self, arguments: list[str]) -> dict[str, Any]:
        """Return the options for the first model, and under `evaluated` those for every one."""
        file = parlai_command.model_file(arguments)
        if file is not None:
            parlai_command.check_is_trained(["evaluate", "-mf", file])
        opt = self.parse_for_model(arguments, file)
        files = opt["compare"] or ()
        for file in files:
            parlai_command.check_is_trained(["evaluate", "-mf", file])
        return opt | {"evaluated": [opt, *(self.parse_for_model([*arguments, "-mf", file], file) for file in files)]}

    def parse_for_model(self, arguments: list[str], file: str | None) -> dict[str, Any]:
        """Return ParlAI's options of a command line, for the model whose file comes last in it, if any."""
        written_by_parlai = file is not None and not parlai_command.names_a_model(arguments) and our_agent(file)
        return super().parse_with_task([*arguments, "-m", written_by_parlai] if written_by_parlai else arguments)


def parser() -> argparse.ArgumentParser:
    """Declare the flags: models, a task with its own flags, files to write."""
    parser = EvaluateParser(
        "polyagents evaluate",
        "Measure how well a model ranks the candidates of a task: R@k, MRR, nDCG@k and MAP with bootstrap intervals. "
        "It ranks the same candidates as eval_model, and takes the same task and model flags.",
        task_required=True,
        evaluates=True,
    )
    parser.add_argument(
        "--compare", nargs="+", action="extend", metavar="MODEL_FILE", help="other models, each compared with the first"
    )
    parser.add_argument(
        "-ne",
        "--num-examples",
        type=positive_int,
        help="evaluate the first N, whole dialogues in order; by default all",
    )
    parser.add_argument(
        "--options-file",
        help="the options of the decisions of calibrated models, if calibrate was given a file of them",
    )
    parser.add_argument("--out", help="a file for the report as JSON")
    parser.add_argument("--trec-run", help="a file for the rankings of the first model, in TREC's format")
    parser.add_argument("--trec-qrels", help="a file for the right answers, in TREC's format")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Rank, measure, print the table, write the files."""
    check_flags(opt)
    from polyagents.evaluation import report  # imports SciPy and torch: errors in flags are reported before
    from polyagents.parlai_agents.evaluating import evaluate

    decides = decision_examples(opt)
    first, *others = opt["evaluated"]
    found = evaluate(first, opt["num_examples"], opt["trec_run"], opt["trec_qrels"])
    models = [found, *(evaluate(other, opt["num_examples"]) for other in others)]
    for other in models:
        if other.digest != found.digest:
            raise InputError(
                f"{other.model_file} was evaluated on other examples than {found.model_file} (digest {other.digest}, "
                f"not {found.digest}), and cannot be compared with it: --task {opt['task']} draws its examples."
            )
    measured = report.measure(models)
    task = {"task": opt["task"], "datatype": opt["datatype"], "batchsize": opt["batchsize"]}
    decisions = decision_reports(opt["evaluated"], decides)
    if opt["out"]:
        write_text(opt["out"], json.dumps(report.as_json(measured, task) | {"decisions": decisions}, indent=2) + "\n")
    print(report.as_text(measured, f"{opt['task']}, {opt['datatype']}"))
    if decisions:
        print("\n".join(["", "Decisions, by the models' calibrations", "", *decision_lines(decisions)]))


def calibrated_file(opt: Mapping[str, Any]) -> str | None:
    """Return the file of a model that is calibrated; None if it is not."""
    from polyagents.decisions.calibration import path_of
    from polyagents.zoo.resolve import zoo_file

    file = zoo_file(opt["model_file"], opt["datapath"])
    return file if os.path.exists(path_of(file)) else None


def decision_examples(opt: Mapping[str, Any]) -> Callable[[], "DecisionExamples"]:
    """Return what reads the task's examples; those of an --options-file are read now, since it may be wrong."""
    from polyagents.parlai_agents.decision_task import examples_of_task

    file = opt["options_file"]
    if file is not None and not any(map(calibrated_file, opt["evaluated"])):
        raise InputError(
            f"--options-file is for calibrated models, and {opt['model_file']} is not calibrated; calibrate it first."
        )
    options = None if file is None else read_options(file)
    examples = functools.cache(lambda: examples_of_task(opt["evaluated"][0], options))
    if file is not None:
        examples()
    return examples


def decision_reports(models: Sequence[Mapping[str, Any]], examples: Callable[[], "DecisionExamples"]) -> dict[str, Any]:
    """Measure the decisions of the models that are calibrated, by file; a note says what is wrong with it."""
    found = {}
    for opt in models:
        if (file := calibrated_file(opt)) is not None:
            try:
                found[opt["model_file"]] = decisions_of_model(opt, file, examples())
            except InputError as error:  # the rankings are measured, whatever the decisions are
                found[opt["model_file"]] = {"note": str(error)}
    return found


def decisions_of_model(opt: Mapping[str, Any], file: str, examples: "DecisionExamples") -> dict[str, Any]:
    """Measure the decisions of a calibrated model, or return a note that says why its calibration does not hold."""
    from polyagents.decisions.calibration import measured, misfit, other_count, other_options, plain
    from polyagents.decisions.scoring import scores_of

    ranker = load_with_flags(opt, file)
    calibration = ranker.calibration
    assert calibration is not None
    if problem := misfit(calibration, ranker.identity, None, 0):
        return {"note": problem}
    scored = scores_of(ranker.model, examples, None, 0)
    note = other_count(calibration, scored.scores.shape[1]) or other_options(calibration, examples)
    return plain(measured(calibration, scored)) | ({"note": note} if note else {})


def decision_lines(decisions: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the table of decisions, with a row for each model that has figures, and the notes."""
    rows = [
        ["", "accuracy", "log loss", "Brier", "calibration error", "none: AUROC", "recall", "precision", "answered"]
    ]
    for file, found in decisions.items():
        if "figures" not in found:
            continue
        figures, ece = found["figures"], found["figures"]["ece"]
        numbers = [figures["accuracy"], figures["log_loss"], figures["brier"], ece["value"], figures["auroc"]]
        numbers += [figures["none_recall"], found["precision"], found["coverage"]]
        rows.append([file, *("-" if number is None else decimals(number) for number in numbers)])
    notes = [f"{file}: {found['note']}" for file, found in decisions.items() if "note" in found]
    return [*(in_columns(rows) if len(rows) > 1 else []), *notes]


def check_flags(opt: Mapping[str, Any]) -> None:
    """Refuse, with an InputError, what cannot be evaluated before a model is loaded."""
    if "train" in opt["datatype"] and "evalmode" not in opt["datatype"]:
        raise InputError("--datatype train draws its examples; give train:evalmode to evaluate on the training set.")
    if "," in opt["task"]:
        raise InputError(f"--task {opt['task']}: evaluate takes one task; call it once for each.")
    if opt["dynamic_batching"]:
        raise InputError("--dynamic-batching puts examples in another order; omit it, batches are sorted anyway.")
    read = (opt["model_file"], *(opt["compare"] or ()), opt["options_file"], *files_read(opt))
    written = {name: ending for name, ending in OUT_FILES.items() if opt[name] is not None}
    for name, ending in written.items():
        check_out_file(flag_of(name), opt[name], [ending], read)
    if len({os.path.realpath(opt[name]) for name in written}) < len(written):
        raise InputError(f"{', '.join(map(flag_of, written))} name the same file; give each its own name.")
