"""The examples of a ParlAI task as decisions: the candidates of some may contain no right one."""

from typing import Any

from parlai.core.opt import Opt

from polyagents.decisions.examples import DecisionExamples, examples_of
from polyagents.parlai_agents.observing_agent import real_labels
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.parlai_patches.exchanges import PARLAIS_SEED


def examples_of_task(opt: Any, options: Any = None) -> DecisionExamples:
    """Read the examples of a task in order, each with everything that was said before it in its dialogue.

    A message with candidates or options and without a label has no right option.

    Args:
        options: of all examples; None for each example's candidates, or all labels.
    """
    reader = TaskReader(Opt(opt), PARLAIS_SEED)
    found: list[dict[str, Any]] = []
    groups: list[int] = []
    dialogue = 0
    while not reader.at_end() and len(found) < (opt.get("num_examples") or float("inf")):
        context, message = reader.message()
        candidates = list(message.get("label_candidates") or ())
        labels = real_labels(message)
        if context and (labels or candidates or options is not None):
            found.append({"context": context, "label": list(labels), "candidates": candidates or None})
            groups.append(dialogue)
        dialogue += bool(message.get("episode_done"))
    numbers = {one: place for place, one in enumerate(dict.fromkeys(groups))}
    return examples_of(found, options, [numbers[one] for one in groups])
