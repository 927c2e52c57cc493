"""Cross-encoders of transformers: a model for sequence classification with one output, which is the score.

Their heads are ours (`--joint-head tanh`, ...): the first token's output, a layer with an activation, a linear layer.
"""

import copy
import os
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

from polyagents.backbone_files import CONFIG, read_config, refuse_adapters
from polyagents.errors import InputError, first_line
from polyagents.files.json_files import read_json
from polyagents.models.backbone import refuse_other_shapes
from polyagents.ranking.joint_model import JointModel
from polyagents.surroundings import OwnDraws, silent_transformers

KIND = "ForSequenceClassification"


class Head(NamedTuple):
    """The head of a class of transformers.

    Attributes:
        dense: the path of its first layer.
        activation: what follows it, as in `--joint-head`.
        output: the path of the layer with one output.
    """

    dense: str
    activation: str
    output: str


ROBERTAS = Head("classifier.dense", "tanh", "classifier.out_proj")
HEADS = {
    "Albert": Head("albert.pooler", "tanh", "classifier"),
    "Bert": Head("bert.pooler.dense", "tanh", "classifier"),
    "Camembert": ROBERTAS,
    "Deberta": Head("pooler.dense", "gelu", "classifier"),
    "DebertaV2": Head("pooler.dense", "gelu", "classifier"),
    "DistilBert": Head("pre_classifier", "relu", "classifier"),
    "Electra": Head("classifier.dense", "gelu", "classifier.out_proj"),
    "MPNet": ROBERTAS,
    "Roberta": ROBERTAS,
    "XLMRoberta": ROBERTAS,
}


class Classifier(NamedTuple):
    """A model for sequence classification.

    Attributes:
        name: of its class.
        outputs: how many it has.
    """

    name: str
    outputs: int


def classifier_in(folder: str) -> Classifier | None:
    """Return what a folder of transformers says of its model; None if that is not for sequence classification.

    Raises:
        InputError: its configuration cannot be read, or is that of adapters.
    """
    refuse_adapters(folder)
    path = os.path.join(folder, CONFIG)
    try:
        found = read_json(path)
        name = str((found.get("architectures") or [None])[0])
        labels = found.get("id2label")
        outputs = found.get("num_labels", 2) if labels is None else len(labels)
    except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder} is not an encoder: its {CONFIG} is missing or damaged ({first_line(error)}); give a folder of "
            f"Hugging Face or sentence-transformers, or a name on the hub."
        ) from error
    return Classifier(name, outputs) if name.endswith(KIND) else None


def refuse_other_heads(found: Classifier, name: str) -> None:
    """Refuse a model for sequence classification that is not a cross-encoder of ours: another head, several outputs."""
    if found.outputs != 1:
        raise InputError(
            f"{name} is a classifier with {found.outputs} outputs, and a cross-encoder has one, the score; give a "
            f"model with one, or train from its encoder, with --backbone."
        )
    if found.name.removesuffix(KIND) not in HEADS:
        raise InputError(
            f"{name} is a {found.name}, whose head polyagents cannot compute; those of {', '.join(HEADS)} can be "
            f"computed. Train from its encoder, with --backbone."
        )


def load_classifier(folder: str, found: Classifier) -> Any:
    """Load a model for sequence classification whose head is ours, in fp32; refuse missing weights."""
    config = read_config(folder)
    config.num_labels = 1
    try:
        with silent_transformers():
            model, loaded = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, with their shapes
            )
    except Exception as error:  # transformers raises a dozen kinds, by version
        raise InputError(f"{folder}: no weights could be loaded from there ({first_line(error)}).") from error
    refuse_other_shapes(loaded, folder)
    if absent := sorted(loaded["missing_keys"]):
        raise InputError(f"{folder} has no weights for {absent[0]}, so its scores would be random; give another model.")
    if type(model).__name__ != found.name:
        raise InputError(f"{folder} says that it is a {found.name}, but is a {type(model).__name__}.")
    return model.eval()


def copy_head(model: JointModel, theirs: Any, to_theirs: bool) -> None:
    """Copy the weights of a head to a classifier whose head is of the same kind (`to_theirs`), or from it."""
    head = HEADS[type(theirs).__name__.removesuffix(KIND)]
    assert model.module.dense is not None
    for path, own in ((head.dense, model.module.dense), (head.output, model.module.linear)):
        other: nn.Module = theirs.get_submodule(path)
        source, target = (own, other) if to_theirs else (other, own)
        target.load_state_dict(source.state_dict())


def class_for(model: JointModel) -> Any:
    """Return the class of transformers whose head a cross-encoder has; None if there is none."""
    config = model.context_encoder.backbone.config
    kind: Any = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(config), None)
    head = HEADS.get(kind.__name__.removesuffix(KIND)) if kind is not None else None
    return kind if head is not None and head.activation == model.module.head else None


def classifier_of(model: JointModel) -> Any:
    """Build the model of transformers that scores as a cross-encoder does, whose head has a `class_for`."""
    backbone = model.context_encoder.backbone
    config = copy.deepcopy(backbone.config)
    config.num_labels = 1
    with silent_transformers(), OwnDraws():
        theirs = class_for(model)(config)
    theirs.base_model.load_state_dict(backbone.state_dict(), strict=False)  # a pooler is in the head here
    copy_head(model, theirs, to_theirs=True)
    return theirs.eval()
