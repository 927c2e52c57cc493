"""The messages of a task and the replies to them, one by one, as in ParlAI's eval_model."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from parlai.core.worlds import BatchWorld, World

from polyagents.files.hashing import utf8

PARLAIS_SEED = 42  # of eval_model, for a task that draws its candidates


def exchanges(world: World, num_examples: float) -> Iterator[tuple[int, Any, Any]]:
    """Do one pass over a task, in its order, and yield (place in the batch, message, reply).

    It draws nothing but from ParlAI's fixed seed: all models with the same batch size meet the same examples in the
    same order. `num_examples` are read at least, in whole batches; all if there are fewer.
    """
    random.seed(PARLAIS_SEED)
    world.reset()
    seen = 0
    while not world.epoch_done() and seen < num_examples:
        world.parley()
        given, replies = world.acts if isinstance(world, BatchWorld) else [[act] for act in world.acts]
        seen += len(replies)
        for place, (message, reply) in enumerate(zip(given, replies, strict=True)):
            yield place, message, reply


def note(message: Mapping[str, Any], digest: Any) -> None:
    """Add an example to a hash of all."""
    texts = [message["text"], *message["eval_labels"], *(message.get("label_candidates") or ())]
    digest.update(utf8("\n".join(texts) + "\n\n"))
