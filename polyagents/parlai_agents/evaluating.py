"""One of our rankers, evaluated on a ParlAI task: what eval_model runs, with every example's ranking kept."""

import contextlib
import hashlib
import math
import sys
from collections.abc import Iterator

import numpy as np
from parlai.core.agents import create_agent
from parlai.core.opt import Opt
from parlai.core.worlds import World, create_task
from tqdm import tqdm

from polyagents.errors import InputError
from polyagents.evaluation.judged import Judged
from polyagents.evaluation.report import Evaluated
from polyagents.evaluation.trec_files import Write
from polyagents.parlai_agents.exchanges import exchanges, note
from polyagents.parlai_agents.quiet import quiet
from polyagents.parlai_agents.ranker_agent import RankerAgent

SLOW = 5  # seconds after which a progress bar is shown


def evaluate(opt: Opt, num_examples: int | None, write: Write | None = None) -> tuple[Evaluated, list[int]]:
    """Evaluate a model on a task, with the candidates that its flags name.

    Args:
        opt: of a command with flags of a model and of a task.
        num_examples: at least so many, in whole batches; None is all.
        write: is told every example as it is ranked.

    Returns:
        What was measured, and the model's `--recall-at`.

    Raises:
        InputError: the model is none of our rankers, the task cannot be read, or has no example with a label.
    """
    # Standard output is for the report, and teachers print to it.
    with quiet(), contextlib.redirect_stdout(sys.stderr):
        agent, world = ranker_and_world(opt)
        ranks, sizes, dialogues, digest = [], [], [], hashlib.sha256()
        for dialogue, judged in judged_examples(world, num_examples, digest):
            ranks.append(judged.right_ranks())
            sizes.append(len(judged))
            dialogues.append(dialogue)
            if write is not None:
                write(len(ranks), judged)
    if not ranks:
        raise InputError(
            f"--task {opt['task']} has no example with text and label in --datatype {opt['datatype']}; there is "
            f"nothing to evaluate."
        )
    _, numbered = np.unique(dialogues, return_inverse=True)
    examples = digest.hexdigest()[:16]
    source = str(agent.eval_candidates)
    evaluated = Evaluated(
        opt["model_file"], agent.ranking.label, source, ranks, np.array(sizes), numbered.astype(np.int64), examples
    )
    return evaluated, list(agent.recall_at)


def ranker_and_world(opt: Opt) -> tuple[RankerAgent, World]:
    """The agent of a model file, which keeps its rankings, and the task before it.

    Raises:
        InputError: it is none of our rankers, or the task cannot be read.
    """
    agent = create_agent(opt, requireModelExists=True)
    if not isinstance(agent, RankerAgent):
        raise InputError(f"{opt['model_file']} is no ranker of polyagents: evaluate is for bi, poly, uni and cross.")
    agent.judges = True
    try:
        return agent, create_task(opt, agent)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"--task {opt['task']} cannot be read ({str(error).splitlines()[0]}); give a task that parlai "
            f"display_data shows, with its flags."
        ) from error


def judged_examples(world: World, num_examples: int | None, digest: "hashlib._Hash") -> Iterator[tuple[int, Judged]]:
    """The examples that have a label, in order: the number of the dialogue that each is from, and its ranking.

    Args:
        world: of the task and an agent that judges.
        num_examples: at least so many, in whole batches; None is all.
        digest: to which the texts of the examples are added.
    """
    limit = math.inf if num_examples is None else num_examples
    dialogue_of: dict[int, int] = {}  # by place in the batch
    begun = 0
    with tqdm(total=min(limit, world.num_examples() or 0) or None, unit=" examples", delay=SLOW) as bar:
        for place, message, reply in exchanges(world, limit):
            if place not in dialogue_of:
                dialogue_of[place], begun = begun, begun + 1
            if reply.get("judged") is not None:
                note(message, digest)
                yield dialogue_of[place], reply["judged"]
                bar.update()
            if message.get("episode_done"):
                del dialogue_of[place]
