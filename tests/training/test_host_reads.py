"""A training step reads nothing from the device, since a GPU would have to finish all its work first.

The device is a fake one: it knows the shapes of its tensors and not their numbers, so that a read is an error.
"""

import sys
from contextlib import nullcontext

import pytest
import torch
from backbones import SENTENCES
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.models import encoder as encoding
from polyagents.models import tokens
from polyagents.models.encoder import Encoder
from polyagents.parlai_patches.late_metrics import each_of
from polyagents.ranking.candidate_set import Label, inline_set, shared_set
from polyagents.text.pretrained import load_tokenizer
from polyagents.training import optimising
from polyagents.training.candidate_sources import EncodedExamples
from polyagents.training.objective import Objective, training_scores
from polyagents.training.watch import Watch

CONTEXTS = [*SENTENCES[:2], " ".join(SENTENCES)]
LABELS = SENTENCES[1:5]
VARIANTS = {
    "bi": ("BiEncoder", {}),
    "bi, cosine, mean": ("BiEncoder", {"similarity": "cosine", "reduction_type": "mean"}),
    "poly": ("PolyEncoder", {}),
    "poly, first": ("PolyEncoder", {"polyencoder_type": "n_first"}),
    "poly, last, sqrt": ("PolyEncoder", {"polyencoder_type": "n_last", "poly_attention_type": "sqrt"}),
    "uni": ("UniEncoder", {}),
    "cross, dot, late": ("CrossEncoder", {"joint_head": "dot+late"}),
}


def model_of(backbone, architecture, options):
    torch.manual_seed(0)
    defaults = {"backbone": backbone, "poly_n_codes": 3, "text_truncate": 30, "label_truncate": 10}
    settings = settings_of(architecture, defaults | options)
    tokenizer = load_tokenizer(backbone)
    model = build_model(build_encoder(settings, tokenizer, training=True), tokenizer, settings)
    model.module.train()
    return model


def batch_of(model, inline):
    labels = [Label(candidate, (candidate.text,)) for candidate in model.candidates(LABELS[: len(CONTEXTS)])]
    contexts = model.context_ids([*CONTEXTS[:-1], CONTEXTS[0]])  # one of them twice
    examples = EncodedExamples(contexts, CONTEXTS, labels, None)
    own = model.candidates(LABELS)
    if inline:
        return examples, inline_set([own[: 2 + row % 2] for row in range(len(contexts))], labels)
    return examples, shared_set(own, labels)


def step(model, inline, chunk_tokens):
    """Do one update: what Trainer and the agents do."""
    examples, candidates = batch_of(model, inline)
    objective = Objective(model)
    loss = objective.of(training_scores(model, examples.contexts, candidates, chunk_tokens), examples, candidates)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss.backward([len(examples)], scaler, 1)
    optimizer = torch.optim.AdamW(optimising.weight_groups(model.module, 1e-3, 1e-2, 0.01))
    optimising.fuse(optimizer)
    weights = [weight for weight in model.module.parameters() if weight.requires_grad]
    watch = Watch(torch.device("cuda"))
    watch.saw_batch(1, loss.losses, examples)
    watch.saw_update(optimising.step(optimizer, scaler, weights, limit=1.0))
    for metric in each_of(loss.values, len(examples))["mean_loss"]:
        _ = metric + metric
    return watch


@pytest.fixture
def device(monkeypatch):
    """A device that the host must not read from: its tensors have shapes and no numbers."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    monkeypatch.setattr(encoding, "FastDropout", nullcontext)  # the fast one is for CPUs
    for module in list(sys.modules.values()):  # in tokens.py it also moves what is asked of a backbone only once
        if module is not tokens and getattr(module, "to_device", None) is tokens.to_device:
            monkeypatch.setattr(module, "to_device", lambda tensor, device: mode.from_tensor(tensor))
    return mode


def moved_to(mode, model):
    """The model with its weights on the device; what is asked of a backbone only once is asked before."""
    for encoder in [part for part in model.module.modules() if isinstance(part, Encoder)]:
        _ = encoder.causal, encoder.keeps_apart
    known = {}
    for part in model.module.modules():
        for name, weight in part._parameters.items():
            if weight is not None:
                fresh = torch.nn.Parameter(mode.from_tensor(weight.data), requires_grad=weight.requires_grad)
                part._parameters[name] = known.setdefault(id(weight), fresh)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else mode.from_tensor(buffer)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("inline", "chunk_tokens"), [(False, 24), (True, None)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_update_reads_nothing(backbone, device, variant, inline, chunk_tokens):
    architecture, options = VARIANTS[variant]
    model = moved_to(device, model_of(backbone, architecture, options))
    watch = step(model, inline, chunk_tokens)
    assert any(weight.grad is not None for weight in model.module.parameters())
    with pytest.raises(DataDependentOutputException):  # one does wait when one looks
        watch.look(1)


def test_a_read_would_be_noticed(device):
    weight = device.from_tensor(torch.ones(3))
    with pytest.raises(DataDependentOutputException):
        weight.sum().item()
    with pytest.raises(DynamicOutputShapeException):
        weight[weight > 0]
