"""The measurements of `polyagents bench_training`: training steps of ours, of ParlAI and of sentence-transformers.

Every figure comes from a process of its own, so that its peak memory is its own:

    python -m polyagents.benchmarks.training < job.json > row.json

A step is texts in, updated weights out. All train all layers, with the dropout of the backbone, on the same batches, on
the GPU if there is one; what is not about sizes and tokens is each library's own default.
"""

import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from parlai.core.agents import create_agent
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname
from torch import Tensor, nn
from transformers import AutoConfig

from polyagents.benchmarks import measure, peers
from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.model_files.building import vocabulary_of
from polyagents.models.backbone import load_backbone
from polyagents.models.encoder import max_tokens
from polyagents.models.model_options import SCRATCH, EncoderOptions
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_patches.compat import quiet

CODES = 64
CHECKED = 8  # examples whose loss is compared
# How a batch goes through the encoder: as one, or in parts whose activations are not all kept.
WHOLE, TOKENS, TEXTS = "whole", "{:,} tokens", "32 texts"
# The messages of a process whose memory ran out, by where it happened.
OUT_OF_MEMORY = ("allocate memory", "out of memory", "bad_alloc", "MemoryError")
Row = dict[str, Any]
Pairs = tuple[Sequence[str], Sequence[str]]


@dataclass(frozen=True)
class Setting:
    """What all processes of a run have in common.

    Attributes:
        backbone: as the user named it, for ours.
        folder: what `prepare` wrote: the same weights and tokens for the others.
        precision: fp32 or bf16.
        chunk_tokens: the size of the parts of the largest batch.
    """

    backbone: str
    folder: str
    precision: str
    chunk_tokens: int


@dataclass(frozen=True)
class Job:
    """One line of the table: a way to train, with a batch size, whole or in parts."""

    way: str
    batch: int
    parts: str


@dataclass(frozen=True)
class Trainee:
    """A model in training.

    Attributes:
        step: one training step on B texts and B labels.
        embeddings: the layers that token ids enter, and the id that is padding.
    """

    step: Callable[[Sequence[str], Sequence[str]], Any]
    embeddings: Sequence[nn.Module]
    pad_id: int


# ---- the run as a whole ----------------------------------------------------------------------------------------------


def compare(
    backbone: str, examples: Sequence[tuple[str, str]], sizes: Sequence[int], precision: str, chunk_tokens: int
) -> tuple[list[Row], list[Row]]:
    """Measure every way at every batch size.

    Args:
        examples: (text, label); one of the largest batch for each step, and one that warms up.
        sizes: the batch sizes, ascending; the largest is trained in parts.
        precision: fp32 or bf16; ParlAI has fp32 only.
        chunk_tokens: the size of a part; ours counts padding, sentence-transformers does not.

    Returns:
        A row for each way and size, and the ratios of interest.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepare(backbone, folder)
        setting = Setting(backbone, folder, precision, chunk_tokens)
        unequal = run({"check": asdict(setting), "batches": [columns(distinct(examples)[:CHECKED])]})
        if unequal:
            raise RuntimeError(f"The losses could not be compared: {unequal}")
        rows, steps = [], len(examples) // sizes[-1]
        bar = Bar(jobs(sizes, chunk_tokens))
        for job in bar:
            bar.set_description(f"{job.way}, batch {job.batch}")
            batches = [columns(examples[i * job.batch : (i + 1) * job.batch]) for i in range(steps)]
            rows.append(asdict(job) | run({"job": asdict(job), "setting": asdict(setting), "batches": batches}))
    return rows, ratios(rows, sizes, TOKENS.format(chunk_tokens))


def jobs(sizes: Sequence[int], chunk_tokens: int) -> list[Job]:
    """Return all lines of the table.

    Args:
        chunk_tokens: the size of the parts of the largest batch.
    """
    in_tokens, large = TOKENS.format(chunk_tokens), sizes[-1]
    todo = [Job("ParlAI poly", size, WHOLE) for size in sizes]
    for way in ("sentence-transformers bi", "polyagents bi", "polyagents poly"):
        todo += [Job(way, size, WHOLE) for size in sizes[:-1]]
        todo += [Job(way, large, TEXTS)] if way == "sentence-transformers bi" else []
        todo += [Job(way, large, in_tokens)]
    return todo


def ratios(rows: Sequence[Row], sizes: Sequence[int], in_tokens: str) -> list[Row]:
    """Return the ratios of interest; none where memory ran out.

    Args:
        in_tokens: the name of the way with parts of tokens.
    """
    small, plain, large = sizes[0], sizes[-2], sizes[-1]

    def of(way: str, batch: int, parts: str = WHOLE, name: str = "examples/s") -> float:
        values = [row.get(name) for row in rows if (row["way"], row["batch"], row["parts"]) == (way, batch, parts)]
        return float(values[0]) if isinstance(values[0], float) else float("nan")

    poly, bi, theirs = "polyagents poly", "polyagents bi", "sentence-transformers bi"
    cached = np.fmax(of(theirs, large, TEXTS), of(theirs, large, in_tokens))  # the faster of its two
    found = {
        f"speed, poly {small}: polyagents to ParlAI": of(poly, small) / of("ParlAI poly", small),
        f"speed, bi {plain}: polyagents to sentence-transformers": of(bi, plain) / of(theirs, plain),
        f"speed, bi {large} in parts: polyagents to sentence-transformers": of(bi, large, in_tokens) / cached,
        f"time per example, polyagents bi: {large} in parts to {plain}": of(bi, plain) / of(bi, large, in_tokens),
    }
    for way in (bi, poly):
        peaks = of(way, large, in_tokens, "peak MB"), of(way, small, name="peak MB")
        found[f"peak memory, {way}: {large} in parts to {small}"] = peaks[0] / peaks[1]
    return [{"ratio": name, "value": None if np.isnan(value) else float(value)} for name, value in found.items()]


def run(content: dict[str, Any]) -> Row:
    """Do one job in this process, and return its row."""
    command = [sys.executable, "-m", "polyagents.benchmarks.training"]
    done = subprocess.run(command, input=json.dumps(content), capture_output=True, text=True, encoding="utf-8")
    if done.returncode == 0:
        row: Row = json.loads(done.stdout)
        return row
    if done.returncode == -9 or any(sign in done.stderr for sign in OUT_OF_MEMORY):  # the kernel kills by signal 9
        return {"examples/s": "out of memory"}
    raise RuntimeError(f"A measuring process failed ({done.returncode}):\n{done.stderr[-4000:]}")


# ---- texts and weights, once -----------------------------------------------------------------------------------------


def draw(opt: Opt, count: int) -> list[tuple[str, str]]:
    """Draw examples of a task's training set, the same every time, each with its conversation so far."""
    random.seed(0)  # ParlAI's flatten mutator draws one of several labels
    with quiet():
        teacher = create_task_agent_from_taskname(
            Opt(opt) | {"datatype": "train:ordered", "mutators": "flatten", "batchsize": 1}
        )[0]
        found = []
        while not teacher.epoch_done():
            message = teacher.act()
            if message.get("text") and message.get("labels"):
                found.append((message["text"], message["labels"][0]))
    if len(found) < count:
        raise InputError(
            f"--task {opt['task']} has {len(found):,} training examples, and --batch-sizes and --steps want {count:,}; "
            f"lower them."
        )
    return random.Random(0).sample(found, count)


def distinct(examples: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return one example for each label: sentence-transformers takes a repeated label as a negative, ours does not."""
    return [(text, label) for label, text in {label: text for text, label in examples}.items()]


def columns(examples: Sequence[tuple[str, str]]) -> Pairs:
    """Return a batch as its texts and its labels."""
    return [text for text, _ in examples], [label for _, label in examples]


def prepare(backbone: str, folder: str) -> None:
    """Write our dictionary and the backbone in a form that gives the others the same tokens and weights."""
    if backbone.startswith(SCRATCH):
        raise InputError(f"--backbone {backbone} has no weights before training; give a pretrained encoder's folder.")
    opt = our_options("bi", backbone=backbone)
    dictionary = TextDictionary(opt)
    loaded = load_backbone(EncoderOptions.read(opt), vocabulary_of(dictionary.ready), training=True)
    positions = max_tokens(loaded)
    if positions is not None and positions < peers.TEXT_TRUNCATE:
        raise InputError(
            f"--backbone {backbone} has positions for {positions} tokens, and contexts here have up to "
            f"{peers.TEXT_TRUNCATE}; give another."
        )
    dictionary.save(dict_file(folder))
    peers.st_folder(dictionary.ready, loaded, folder)


def dict_file(folder: str) -> str:
    """Return the path of our dictionary."""
    return os.path.join(folder, "M.dict")


# ---- the ways to train -----------------------------------------------------------------------------------------------


def our_options(kind: str, **flags: Any) -> Opt:
    """Return the options of one of our agents in training, with all layers, since the others train them all.

    All layers, since the others train them all; the default for a pretrained backbone leaves the embeddings.
    """
    name = {"bi": "polyagents:BiEncoder", "poly": "polyagents:PolyEncoder"}[kind]
    return ParlaiParser(True, True).parse_kwargs(
        model=name,
        datatype="train",
        no_cuda=measure.device().type == "cpu",
        candidates="batch",
        train_layers="all",
        reduction_type="first",  # as all others here have it, whatever the backbone was trained with
        similarity="dot",
        learningrate=5e-5,
        poly_n_codes=CODES,
        share_encoders=kind == "bi",  # like sentence-transformers; a poly-encoder has two, like ParlAI's
        text_truncate=peers.TEXT_TRUNCATE,
        label_truncate=peers.LABEL_TRUNCATE,
        **flags,
    )


def our_agent(kind: str, batch: int, setting: Setting, chunked: bool, **flags: Any) -> Any:
    """Make one of our agents in training; in chunks of `--chunk-tokens`, or whole.

    Args:
        chunked: whether to use chunks.
    """
    chunks = {"chunk_tokens": setting.chunk_tokens} if chunked else {}
    with quiet():
        return create_agent(
            our_options(
                kind, backbone=setting.backbone, batchsize=batch, precision=setting.precision, **chunks, **flags
            )
        )


def train_ours(kind: str, job: Job, setting: Setting) -> Trainee:
    """Make a bi- or poly-encoder of ours."""
    agent = our_agent(kind, job.batch, setting, job.parts != WHOLE)
    module = agent.ranking.module
    encoders = {id(encoder): encoder for encoder in (module.context_encoder, module.candidate_encoder)}
    embeddings = [encoder.backbone.get_input_embeddings() for encoder in encoders.values()]
    return Trainee(functools.partial(peers.train, agent), embeddings, agent.ranking.tokenizer.pad_id)


def train_parlai(job: Job, setting: Setting) -> Trainee:
    """Make ParlAI's poly-encoder with the backbone's sizes and dropout, and random weights, which take as long."""
    config = AutoConfig.from_pretrained(setting.folder)
    agent = peers.parlai_agent(
        "poly",
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        CODES,
        dict_file=dict_file(setting.folder),
        datatype="train",
        no_cuda=measure.device().type == "cpu",
        batchsize=job.batch,
        candidates="batch",
        dropout=getattr(config, "hidden_dropout_prob", 0.0),
        attention_dropout=getattr(config, "attention_probs_dropout_prob", 0.0),
    )
    embeddings = [agent.model.encoder_ctxt.embeddings, agent.model.encoder_cand.embeddings]
    return Trainee(functools.partial(peers.train, agent), embeddings, agent.NULL_IDX)


def train_st(job: Job, setting: Setting) -> Trainee:
    """Make a bi-encoder of sentence-transformers, stepped like its trainer; optimiser and clipping are ours."""
    model = peers.st_bi_encoder(setting.folder, setting.precision)
    mini_batch = {WHOLE: {}, TEXTS: {"mini_batch_size": 32}}.get(
        job.parts, {"mini_batch_num_tokens": setting.chunk_tokens}
    )
    loss = peers.st_loss(model, **mini_batch)
    ours = our_options("bi", backbone=setting.backbone)
    optimiser = torch.optim.AdamW(model.parameters(), lr=ours["learningrate"], weight_decay=ours["weight_decay"])

    def step(texts: Sequence[str], labels: Sequence[str]) -> None:
        optimiser.zero_grad()
        loss(peers.st_features(model, texts, labels), None).backward()
        nn.utils.clip_grad_norm_(model.parameters(), ours["gradient_clip"])
        optimiser.step()

    return Trainee(step, [model[0].auto_model.get_input_embeddings()], model.tokenizer.pad_token_id)


WAYS: dict[str, Callable[[Job, Setting], Trainee]] = {
    "ParlAI poly": train_parlai,
    "sentence-transformers bi": train_st,
    "polyagents bi": lambda job, setting: train_ours("bi", job, setting),
    "polyagents poly": lambda job, setting: train_ours("poly", job, setting),
}


# ---- inside a process of its own -------------------------------------------------------------------------------------


def measured(job: Job, setting: Setting, batches: Sequence[Pairs]) -> Row:
    """Train for a few steps, the first of which warms up.

    Args:
        batches: one batch for each step.

    Returns:
        Examples and their tokens a second (median of the steps), peak memory in MB beyond what the process had before
        there was a model, and how many token positions were computed for each token that was read.
    """
    if job.way.startswith("sentence"):
        import sentence_transformers  # noqa: F401  now: the library itself is not what its model takes
    times, cells, tokens = [], 0, 0

    def count(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal cells, tokens
        cells += inputs[0].numel()
        tokens += int((inputs[0] != trainee.pad_id).sum())

    with measure.peak_memory(measure.device()) as peak:
        trainee = WAYS[job.way](job, setting)
        for layer in trainee.embeddings:
            layer.register_forward_pre_hook(count)
        for texts, labels in batches:
            begin = measure.finished()
            trainee.step(texts, labels)
            times.append(measure.finished() - begin)
    return {
        "precision": "fp32" if job.way.startswith("ParlAI") else setting.precision,
        "examples/s": (rate := job.batch / statistics.median(times[1:])),
        "tokens/s": rate * tokens / (job.batch * len(batches)),
        "peak MB": peak[0],
        "positions per token": cells / tokens,
    }


def check(setting: Setting, texts: Sequence[str], labels: Sequence[str]) -> None:
    """Check that ours and sentence-transformers have the same loss without dropout, and so do the same work."""
    agent = our_agent("bi", len(texts), setting, False, dropout=0)
    ours = [float(reply["metrics"]["mean_loss"]) for reply in peers.train(agent, texts, labels)]
    model = peers.st_bi_encoder(setting.folder, setting.precision).eval()
    theirs = peers.st_loss(model)(peers.st_features(model, texts, labels), None)
    np.testing.assert_allclose(np.mean(ours), theirs.item(), rtol=1e-3)


def main() -> None:
    """Read one job, write one row; other output goes to standard error."""
    content = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    measure.limit_memory()
    torch.manual_seed(0)
    if "check" in content:
        check(Setting(**content["check"] | {"precision": "fp32"}), *content["batches"][0])
        row: Row = {}
    else:
        row = measured(Job(**content["job"]), Setting(**content["setting"]), content["batches"])
    json.dump(row, answer)
    answer.close()


if __name__ == "__main__":
    main()
