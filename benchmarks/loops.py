"""What training costs besides its encoders: `python -m polyagents.benchmarks.loops --backbone FOLDER -t TASK`.

The loops of ParlAI (`train_model`) and of `Ranker.train` make updates of a bi-encoder whose backbone computes nothing.
What remains is reading, tokenising, candidates, chunks, the loss and metrics: the time of a batch below which a GPU
would have to wait for its host.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from parlai.core.agents import create_agent
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.worlds import create_task
from torch import Tensor

from polyagents.arguments import positive_int
from polyagents.benchmarks import peers, report, training
from polyagents.models import encoder
from polyagents.models.encoder import Encoder
from polyagents.models.tokens import Tokens
from polyagents.parlai_patches.compat import quiet
from polyagents.ranker import Ranker
from polyagents.training_loop.callbacks import Callback

FIRST = 2  # updates before the clock starts
Row = dict[str, Any]


def narrow(backbone: str, folder: str) -> str:
    """Write an encoder with the tokenizer of another one, so narrow that its vectors cost nothing.

    Args:
        backbone: the other's folder.
    """
    config = transformers.AutoConfig.from_pretrained(backbone)
    config.update({"hidden_size": 16, "num_attention_heads": 1, "intermediate_size": 16, "num_hidden_layers": 1})
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(backbone).save_pretrained(folder)
    return folder


@contextmanager
def no_encoder() -> Iterator[None]:
    """Let encoders compute nothing while this is open, in the chunks of a GPU: a state is one of their own weights."""
    forward, budget = Encoder.forward, encoder.TRAINING_CHUNK_TOKENS

    def own_weight(
        self: Encoder, tokens: Tokens, sees: Tensor | None = None, positions: Tensor | None = None
    ) -> Tensor:
        self.inputs(tokens, sees, positions, torch.float32)
        weight = next(one for one in self.parameters() if one.requires_grad and one.shape == (self.width,))
        return weight.expand(*tokens.ids.shape, -1)

    Encoder.forward = own_weight  # type: ignore[method-assign]
    encoder.TRAINING_CHUNK_TOKENS = {"cuda": budget["cuda"]}  # for every device
    try:
        yield
    finally:
        Encoder.forward, encoder.TRAINING_CHUNK_TOKENS = forward, budget  # type: ignore[method-assign]


class Clock(Callback):
    """Counts the seconds of each update of `Ranker.train`."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, trainer: Any) -> None:
        """Note the time."""
        self.ends.append(time.perf_counter())


def parlai_seconds(opt: Opt, backbone: str, batch: int, updates: int) -> list[float]:
    """Return the seconds of each update of ParlAI's loop."""
    flags = {"backbone": backbone, "batchsize": batch, "precision": "fp32"}
    with quiet():
        agent = create_agent(training.our_options("bi", **flags))
        world = create_task(Opt(opt) | {"datatype": "train", "batchsize": batch, "mutators": "flatten"}, agent)
        seconds = []
        for _ in range(updates):
            begin = time.perf_counter()
            world.parley()
            seconds.append(time.perf_counter() - begin)
    return seconds


def our_seconds(examples: Sequence[tuple[str, str]], backbone: str, batch: int, updates: int) -> list[float]:
    """Return the seconds of each update of `Ranker.train`, except the first.

    Args:
        examples: texts and labels, enough for all updates.
    """
    clock = Clock()
    Ranker.train(
        [{"context": text.split("\n"), "label": label} for text, label in examples],
        model="bi", callbacks=[clock], progress=False, no_cuda=True, backbone=backbone, batchsize=batch,
        max_train_steps=updates, precision="fp32", share_encoders=True, train_layers="all", reduction_type="first",
        text_truncate=peers.TEXT_TRUNCATE, label_truncate=peers.LABEL_TRUNCATE,
    )  # fmt: skip
    return [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, write it as JSON."""
    parser = ParlaiParser(True, False, "Measure what training costs besides its encoders.")
    parser.add_argument(
        "--backbone", required=True, help="a BERT-style encoder's folder, of which the tokenizer is used"
    )
    parser.add_argument("--batch", type=positive_int, default=512, help="examples of an update")
    parser.add_argument("--updates", type=positive_int, default=20, help="measured updates of each loop")
    parser.add_argument("--out", default="bench-output", help="folder for the table (JSON)")
    opt = parser.parse_args(arguments)
    batch, updates = opt["batch"], opt["updates"] + FIRST
    examples = training.draw(opt, batch * updates)
    with tempfile.TemporaryDirectory() as folder, no_encoder():
        backbone = narrow(opt["backbone"], folder)
        seconds = {
            "train_model": parlai_seconds(opt, backbone, batch, updates),
            "Ranker.train": our_seconds(examples, backbone, batch, updates),
        }
    rows: list[Row] = []
    for loop, found in seconds.items():
        median = statistics.median(found[FIRST:])
        rows.append({"loop": loop, "microseconds an example": median / batch * 1e6, "examples/s": batch / median})
    print(f"batches of {batch}, {torch.get_num_threads()} threads")
    report.publish({"loops": rows}, os.path.join(opt["out"], "loops.json"))


if __name__ == "__main__":
    main()
