"""The options of ParlAI's own bi-, poly- and cross-encoder, and their names in our agents."""

import os
from typing import TYPE_CHECKING, Any

from polyagents.errors import InputError
from polyagents.files.json_files import fits, read_json
from polyagents.options import Role

if TYPE_CHECKING:
    from collections.abc import Mapping
    from dataclasses import Field

    from transformers import PretrainedConfig

AGENTS = {
    "BiEncoder": "transformer/biencoder",
    "PolyEncoder": "transformer/polyencoder",
    "CrossEncoder": "transformer/crossencoder",
}
# Options that determine a score: ParlAI's default, and the values that our agents support. Its reduction "max" is not
# among them: it includes the zeros of the padding, so a score depends on the other texts of the batch.
CHECKED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "variant": ("aiayn", ("xlm",)),
    "activation": ("relu", ("relu", "gelu")),
    "embeddings_scale": (False, (False,)),
    "reduction_type": ("mean", ("first", "mean")),
    "dict_tokenizer": ("re", ("bpe",)),
    "person_tokens": (False, (False,)),
    "special_tok_lst": (None, (None,)),
    "history_reversed": (False, (False,)),
}
CHECKED_IN: dict[str, dict[str, tuple[Any, tuple[Any, ...]]]] = {
    "BiEncoder": {
        "share_encoders": (False, (False,)),  # ParlAI's has two more layers on the candidate's side
        "normalize_sent_emb": (False, (False,)),
        "use_memories": (False, (False,)),
        "wrap_memory_encoder": (False, (False,)),
    },
    "PolyEncoder": {
        "polyencoder_type": ("codes", ("codes", "n_first")),
        "poly_attention_type": ("basic", ("basic", "sqrt")),
        "polyencoder_attention_keys": ("context", ("context", None)),  # in files of 2019
        "codes_attention_type": ("basic", ("basic",)),
    },
    "CrossEncoder": {},
}
Plain = str | int | float | bool | None
# Options that decide a model's shape and what it reads, and their types in ParlAI.
SIZES = ("n_heads", "n_layers", "embedding_size", "ffn_size", "n_segments", "poly_n_codes", "history_size")
LENGTHS = ("n_positions", "text_truncate", "label_truncate", "truncate")
TOKENS = ("dict_nulltoken", "dict_starttoken", "dict_endtoken", "dict_unktoken", "delimiter", "fixed_candidates_path")
TYPES: dict[str, Any] = {
    **dict.fromkeys(SIZES, int),
    **dict.fromkeys(LENGTHS, int | None),
    **dict.fromkeys(TOKENS, str | None),
    **dict.fromkeys(("dropout", "attention_dropout", "relu_dropout", "output_scaling"), float),
    **dict.fromkeys(("dict_lower", "share_word_embeddings"), bool),
}
LARGEST = 10_000_000  # of the numbers
LAYER_NORM_EPS = 1e-5  # parlai/agents/transformer/modules/constants.py

# Options of ours that decide a score, of which ParlAI's agents hold every value, in these or in other options.
HELD = ("backbone", "poly_n_codes", "output_scaling", "share_encoders", "include_prompt", "lora_rank", "backbone_bits")
KEPT = ("task", "history_size", "delimiter", "split_lines", "use_reply", "label_truncate", "share_word_embeddings")


def architecture_of_agent(agent: Any) -> str | None:
    """Return our architecture for the name of one of ParlAI's agents, in any of its forms; None for other agents."""
    name = str(agent).split(":")[0].replace("/", ".")  # parlai.agents.transformer.polyencoder:PolyencoderAgent
    found = (ours for ours, theirs in AGENTS.items() if f".{name}".endswith(f".{theirs.replace('/', '.')}"))
    return next(found, None)


def read(file: str) -> dict[str, Any]:
    """Read `file.opt` as `read_whole` does; empty if there is none, or it contains no options."""
    try:
        return read_whole(f"{file}.opt")
    except InputError:
        return {}


def read_whole(path: str) -> dict[str, Any]:
    """Read the options in a file by name, without values that are neither plain nor lists of plain ones.

    Raises:
        InputError: the file is missing, or contains no options.
    """
    try:
        options = read_json(path)
        if not isinstance(options, dict):
            raise ValueError("it holds no options by name")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); give another --model-file.") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged: no options in JSON; give another --model-file.") from error
    return {name: value for name, value in options.items() if fits(value, Plain | list[Plain])}


def is_parlais(file: str | None) -> bool:
    """Tell whether this is a model file of one of ParlAI's agents that our agents can load."""
    return file is not None and os.path.isfile(file) and architecture_of_agent(read(file).get("model")) is not None


def check(file: str) -> None:
    """Refuse a ParlAI model that our agents would compute differently; other files pass.

    Raises:
        InputError: an option is of another type, or the model has options that ours lack; the message names all of
            them, with what is possible.
    """
    architecture = architecture_of_agent(read(file).get("model"))
    if architecture is None:
        return
    options = read_json(f"{file}.opt")  # with what is of no plain type
    odd = [name for name, hint in TYPES.items() if name in options and not fits_option(name, options[name], hint)]
    if odd:
        raise InputError(
            f"{file}.opt is damaged: {odd[0]} is {str(options[odd[0]])[:40]!r}, which no ParlAI model has; give "
            f"another model file."
        )
    wrong = [
        f"--{name.replace('_', '-')} {options.get(name, default)} (possible: {', '.join(map(str, taken))})"
        for name, (default, taken) in (CHECKED | CHECKED_IN[architecture]).items()
        if options.get(name, default) not in taken
    ]
    if wrong:
        raise InputError(f"{file} is ParlAI's and was trained with {'; '.join(wrong)}, which polyagents does not have.")


def fits_option(name: str, value: Any, hint: Any) -> bool:
    """Tell whether an option has a value that ParlAI's agents can have."""
    if not fits(value, hint):
        return False
    if name.endswith("dropout"):
        return 0 <= value <= 1
    if isinstance(value, bool | str) or value is None:
        return True
    return -1 <= value <= LARGEST if name != "n_heads" else 1 <= value <= LARGEST


def decided_options(options: dict[str, Any], architecture: str) -> dict[str, Any]:
    """Return our flags that a ParlAI model decides, by name."""
    flags: dict[str, Any] = {
        "reduction_type": options.get("reduction_type", "mean"),
        "output_scaling": options.get("output_scaling", 1.0),
    }
    if architecture != "CrossEncoder":
        flags |= {"share_encoders": False, "similarity": "dot"}
    if architecture == "PolyEncoder":
        flags |= {
            "polyencoder_type": options.get("polyencoder_type", "codes"),
            "poly_n_codes": options.get("poly_n_codes", 64),
            "poly_attention_type": options.get("poly_attention_type", "basic"),
        }
    return flags


def translated(options: dict[str, Any], architecture: str) -> dict[str, Any]:
    """Translate all of ParlAI's options of a model to our flags by name, to run it as it is."""
    text, label = (options.get(name) or options.get("truncate") or -1 for name in ("text_truncate", "label_truncate"))
    positions = options.get("n_positions") or max(text, label, 0) or 1024  # as ParlAI's get_n_positions_from_options
    candidates = options.get("fixed_candidates_path")
    return decided_options(options, architecture) | {
        # ParlAI cuts the context before it puts [S] around it.
        "text_truncate": min(text + 2, positions) if text > 0 else positions,
        "label_truncate": min(label, positions) if label > 0 else positions,
        "truncate": -1,
        "dropout": None,  # the configuration has ParlAI's two
        "fp16": False,  # in ParlAI it converts the weights themselves
        "data_parallel": False,
        "init_model": None,
        # A path of the machine that it was trained on.
        "fixed_candidates_path": candidates if candidates and os.path.exists(candidates) else None,
    }


def options_for_parlai(
    opt: dict[str, Any], table: "Mapping[str, Field[Any]]", architecture: str, config: "PretrainedConfig"
) -> dict[str, Any]:
    """Translate our options of a model to ParlAI's, by name.

    Args:
        table: the options that the architecture has.

    Raises:
        InputError: ParlAI's agents lack a feature of this model; the message names it.
    """
    theirs, roles = CHECKED | CHECKED_IN["PolyEncoder"], Role.WEIGHTS | Role.VECTORS | Role.SCORES
    needed: dict[str, tuple[Any, tuple[Any, ...]]] = {
        f"--{name.replace('_', '-')}": (opt.get(name, field.default), theirs.get(name, (None, (field.default,)))[1])
        for name, field in table.items()
        if field.metadata["role"] & roles and name not in HELD
    }
    needed |= {
        "the architecture": (architecture, tuple(AGENTS)),
        "a backbone of the kind": (config.model_type, ("bert",)),
        "the backbone's layer_norm_eps": (getattr(config, "layer_norm_eps", None), (LAYER_NORM_EPS,)),
        "the backbone's activation": (getattr(config, "hidden_act", None), CHECKED["activation"][1]),
    }
    wrong = [
        f"{name} {given} (ParlAI: {', '.join(map(str, had))})"
        for name, (given, had) in needed.items()
        if given not in had
    ]
    if wrong:
        raise InputError(f"ParlAI's agents cannot run this model: it has {'; '.join(wrong)}.")
    text = opt["text_truncate"]
    poly = ("polyencoder_type", "poly_n_codes", "poly_attention_type")
    kept = {name: opt[name] for name in (*KEPT, *poly) if name in opt}
    return {
        "model": AGENTS[architecture],
        "variant": "xlm",
        "n_layers": config.num_hidden_layers,
        "n_heads": config.num_attention_heads,
        "embedding_size": config.hidden_size,
        "ffn_size": config.intermediate_size,
        "n_positions": config.max_position_embeddings,
        "n_segments": config.type_vocab_size,
        "activation": config.hidden_act,
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
        "relu_dropout": 0.0,
        "embeddings_scale": False,
        "learn_positional_embeddings": True,
        "output_scaling": opt["output_scaling"],
        "reduction_type": opt["reduction_type"],
        "share_encoders": False,
        "truncate": -1,
        "lr_scheduler": "none",  # ParlAI's default crashes on today's torch, even in an evaluation
        "text_truncate": text - 2 if text > 2 else text,
        **kept,
    }
