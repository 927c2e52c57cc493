"""Evaluation of one of our rankers on a ParlAI task, like eval_model, but with every example's ranking."""

import contextlib
import math
import sys

import numpy as np
from parlai.core.agents import create_agent
from parlai.core.opt import Opt

from polyagents.console import SLOW, Bar, number_of, say
from polyagents.errors import InputError
from polyagents.evaluation.judged import Judged
from polyagents.evaluation.report import Evaluated
from polyagents.evaluation.trec_files import Write, trec_files
from polyagents.parlai_agents.ranker_agent import RankerAgent
from polyagents.parlai_patches.compat import quiet
from polyagents.parlai_patches.exchanges import WorldInOrder, exchanges, world_in_order
from polyagents.parlai_patches.task_messages import refused_where_unreadable


def evaluate(opt: Opt, num_examples: int | None, run: str | None = None, qrels: str | None = None) -> Evaluated:
    """Evaluate a model on a task, with the candidates that its flags name.

    Args:
        opt: the options of a command with flags of a model and of a task.
        num_examples: how many, from the first on; None for all.
        run: a file to write, TREC's run of this evaluation.
        qrels: a file to write, TREC's qrels.

    Raises:
        InputError: the model is not one of our rankers, the task cannot be read or has no example with a label, or a
            file cannot be written.
    """
    # Standard output is for the report, and teachers print to it.
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        agent, world = ranker_and_world(opt, num_examples)
        with trec_files(run, qrels, str(opt["model_file"])) as write:
            return evaluated(opt, agent, world, write)


def ranker_and_world(opt: Opt, num_examples: int | None) -> tuple[RankerAgent, WorldInOrder]:
    """Return the agent of a model file, which keeps its rankings, and a world with the task."""
    agent = create_agent(opt, requireModelExists=True)
    if not isinstance(agent, RankerAgent):
        raise InputError(f"{opt['model_file']} is not a ranker of polyagents: evaluate is for bi, poly, uni and cross.")
    agent.judges = True
    with refused_where_unreadable(opt["task"]):
        world = world_in_order(opt, agent, num_examples or math.inf)
    if not isinstance(world, WorldInOrder):
        raise InputError(f"--task {opt['task']} has a world of its own, or is several tasks; evaluate takes one task.")
    return agent, world


def evaluated(opt: Opt, agent: RankerAgent, world: WorldInOrder, write: Write) -> Evaluated:
    """Compute the result of an evaluation, and call `write` for every example; there must be some."""
    ranks, sizes, dialogues, own_candidates, alike = [], [], [], False, 0
    with Bar(total=world.num_examples() or None, unit=" examples", delay=SLOW) as bar:
        for dialogue, message, reply in exchanges(world):
            judged: Judged | None = reply.get("judged")
            if judged is None:  # there is no label
                continue
            ranks.append(judged.right_ranks())
            sizes.append(len(judged))
            dialogues.append(dialogue)
            own = message.get("label_candidates") or ()
            own_candidates |= bool(own)
            alike += agent.eval_candidates == "inline" and len({*own}) > len(judged)
            write(len(ranks), judged)
            bar.update()
    if not ranks:
        raise InputError(
            f"--task {opt['task']} has no example with text and label in --datatype {opt['datatype']}; there is "
            f"nothing to evaluate."
        )
    if alike:
        say(
            f"In {alike:,} of {number_of(len(ranks), 'example')}, candidates with different texts have the same "
            f"tokens and count as one: the model's vocabulary or its --label-truncate leaves no difference."
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
        digest=world.digest,
        batchsize=opt["batchsize"],
        no_label=reported_count(agent, "no_label"),
        no_candidates=reported_count(agent, "no_candidates"),
    )


def reported_count(agent: RankerAgent, name: str) -> int:
    """Return a count of an agent's report; 0 if there is none."""
    found = agent.report().get(name)
    return 0 if found is None else int(found.value())
