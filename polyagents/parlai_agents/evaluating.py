"""Evaluation of one of our rankers on a ParlAI task, like eval_model, but with every example's ranking."""

import contextlib
import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from parlai.core.agents import create_agent
from parlai.core.opt import Opt
from parlai.core.worlds import World, create_task
from tqdm import tqdm

from polyagents.console import SLOW
from polyagents.errors import InputError
from polyagents.evaluation.judged import Judged
from polyagents.evaluation.report import Evaluated
from polyagents.evaluation.trec_files import Write, trec_files
from polyagents.parlai_agents.ranker_agent import RankerAgent
from polyagents.parlai_patches.exchanges import exchanges, note
from polyagents.parlai_patches.quiet import quiet

Example = tuple[int, Mapping[str, Any], Judged]
"""Which dialogue an example is from, the task's message, and the candidates as they were ranked."""


def evaluate(opt: Opt, num_examples: int | None, run: str | None = None, qrels: str | None = None) -> Evaluated:
    """Evaluate a model on a task, with the candidates that its flags name.

    Args:
        opt: the options of a command with flags of a model and of a task.
        num_examples: how many at least, in whole batches; None for all.
        run: a file to write, TREC's run of this evaluation.
        qrels: a file to write, TREC's qrels.

    Raises:
        InputError: the model is not one of our rankers, the task cannot be read or has no example with a label, or a
            file cannot be written.
    """
    # Standard output is for the report, and teachers print to it.
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        agent, world = ranker_and_world(opt)
        with trec_files(run, qrels, str(opt["model_file"])) as write:
            return evaluated(opt, agent, judged_examples(world, num_examples), write)


def ranker_and_world(opt: Opt) -> tuple[RankerAgent, World]:
    """Return the agent of a model file, which keeps its rankings, and a world with the task."""
    agent = create_agent(opt, requireModelExists=True)
    if not isinstance(agent, RankerAgent):
        raise InputError(f"{opt['model_file']} is not a ranker of polyagents: evaluate is for bi, poly, uni and cross.")
    agent.judges = True
    try:
        return agent, create_task(opt, agent)
    except InputError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(
            f"--task {opt['task']} cannot be read ({str(error).splitlines()[0]}); give a task that parlai "
            f"display_data shows, with its flags."
        ) from error


def judged_examples(world: World, num_examples: int | None) -> Iterator[Example]:
    """Yield the examples that have a label, in order: the dialogue of each, the task's message, and its ranking.

    Args:
        num_examples: how many at least, in whole batches; None for all.
    """
    limit = math.inf if num_examples is None else num_examples
    dialogue_of: dict[int, int] = {}  # by place in the batch
    begun = 0
    with tqdm(total=min(limit, world.num_examples() or 0) or None, unit=" examples", delay=SLOW) as bar:
        for place, message, reply in exchanges(world, limit):
            if place not in dialogue_of:
                dialogue_of[place], begun = begun, begun + 1
            if reply.get("judged") is not None:
                yield dialogue_of[place], message, reply["judged"]
                bar.update()
            if message.get("episode_done"):
                del dialogue_of[place]


def evaluated(opt: Opt, agent: RankerAgent, examples: Iterable[Example], write: Write) -> Evaluated:
    """Compute the result of an evaluation, and call `write` for every example; there must be some."""
    ranks, sizes, dialogues, digest, own_candidates = [], [], [], hashlib.sha256(), False
    for dialogue, message, judged in examples:
        ranks.append(judged.right_ranks())
        sizes.append(len(judged))
        dialogues.append(dialogue)
        note(message, digest)
        own_candidates |= bool(message.get("label_candidates"))
        write(len(ranks), judged)
    if not ranks:
        raise InputError(
            f"--task {opt['task']} has no example with text and label in --datatype {opt['datatype']}; there is "
            f"nothing to evaluate."
        )
    return Evaluated(
        model_file=opt["model_file"],
        architecture=agent.ranking.label,
        cutoffs=agent.recall_at,
        # If a task has no candidates, the labels of each batch replace them (training/candidate_sources.py).
        source=agent.eval_candidates if own_candidates or agent.eval_candidates == "fixed" else "batch",
        right_ranks=ranks,
        sizes=np.array(sizes),
        dialogues=np.unique(dialogues, return_inverse=True)[1],
        examples_hash=digest.hexdigest()[:16],
        no_label=counted(agent, "no_label"),
        no_candidates=counted(agent, "no_candidates"),
    )


def counted(agent: RankerAgent, name: str) -> int:
    """Return a count of an agent's report; 0 if there is none."""
    found = agent.report().get(name)
    return 0 if found is None else int(found.value())
