"""Reads the pooling and the prompts of a sentence-transformers folder from its `modules.json`.

The weights are in a Hugging Face folder, which `--backbone` reads anyway. The files are read as plain JSON: no
class that they name is imported. An InputError of any function here may say that a file is missing, damaged or outside
of the folder.
"""

import glob
import os
from collections.abc import Mapping
from typing import Any

from polyagents.errors import InputError
from polyagents.files.json_files import fits, read_json

# The library's pooling modes -> our --reduction-type. For decoders, our "first" is the last token, too.
REDUCTIONS = {"cls": "first", "cls_token": "first", "lasttoken": "first", "mean": "mean", "mean_tokens": "mean"}
SETTINGS, TOKENIZER, CONFIG = "config_sentence_transformers.json", "tokenizer_config.json", "config.json"
POSITIONS = "max_position_embeddings"
UNLIMITED = 2**31  # tokens; transformers writes 1e30 for no limit
LIBRARY = "sentence_transformers."
WITHOUT_WEIGHTS = {"Normalize", "Dropout"}  # the similarity and the training decide these
CONTEXT_PROMPTS, CANDIDATE_PROMPTS = ("query",), ("document", "passage", "corpus")  # the library's names, best first


def is_folder(path: str) -> bool:
    """Tell whether a path is a folder of sentence-transformers."""
    return os.path.isfile(os.path.join(path, "modules.json"))


def reduction_of(folder: str) -> str:
    """Return our --reduction-type for the pooling of a folder."""
    mode = pooling_of(folder)
    return "first" if mode is None else REDUCTIONS[mode]


def pooling_of(folder: str) -> str | None:
    """Return the library's name for the pooling of a folder, one of REDUCTIONS; None if it has no such module.

    Raises:
        InputError: the folder has modules that we do not have, or pools in another way or in several.
    """
    kinds = modules_in(folder)
    if "Router" in kinds or "Asym" in kinds:
        raise InputError(
            f"--backbone {folder} has an encoder for queries and one for documents; give the folder of one of them, "
            f"such as {os.path.join(folder, 'query_0_Transformer')}."
        )
    if unknown := sorted(kinds.keys() - {"Transformer", "Pooling"} - WITHOUT_WEIGHTS):
        raise InputError(
            f"--backbone {folder} has modules of sentence-transformers that polyagents does not have "
            f"({', '.join(unknown)}); to start from its encoder without them, give --reduction-type."
        )
    if "Pooling" not in kinds:
        return None
    settings = pooling_settings(folder)
    flags = [name.removeprefix("pooling_mode_") for name in settings if name.startswith("pooling_mode_")]
    modes = [name for name in flags if settings[f"pooling_mode_{name}"] is True] or settings.get("pooling_mode")
    modes = modes if isinstance(modes, list) else [modes]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in REDUCTIONS:
        raise InputError(
            f"--backbone {folder} pools its outputs by {modes}, which polyagents does not have; give --reduction-type "
            f"first or mean to start from its encoder anyway."
        )
    return str(modes[0])


def modules_in(folder: str) -> dict[str, str]:
    """Return the paths of a folder's modules, by the names of their classes; none if it is not the library's."""
    if not is_folder(folder):
        return {}
    listed = read_folder_json(folder, "modules.json")
    if not fits(listed, list[dict[str, Any]]) or not all(
        fits([module.get("type"), module.get("path")], list[str]) for module in listed
    ):
        raise damaged_folder(folder, "modules.json")
    # A class of the folder's own, or of another package, computes what only its code says, whatever its name.
    return {
        kind.rsplit(".", 1)[-1] if kind.startswith(LIBRARY) else kind: path
        for kind, path in ((module["type"], module["path"]) for module in listed)
    }


def pooling_settings(folder: str) -> Mapping[str, Any]:
    """Return the settings of a folder's module Pooling: the older ones, or version 6's; none without a module."""
    path = modules_in(folder).get("Pooling")
    if path is None:
        return {}
    settings = read_folder_json(folder, os.path.join(path, "config.json"))
    if not isinstance(settings, Mapping):
        raise damaged_folder(folder, os.path.join(path, "config.json"))
    return settings


def includes_prompt(folder: str) -> bool:
    """Return our --include-prompt for a folder."""
    included = pooling_settings(folder).get("include_prompt", True)
    if not isinstance(included, bool):
        raise damaged_folder(folder, "include_prompt of its Pooling")
    return included


def similarity_of(folder: str, otherwise: str | None = None) -> str:
    """Return our --similarity for a folder.

    Args:
        otherwise: for a folder that compares vectors in a way that we do not have; None to refuse it.

    Raises:
        InputError: it compares vectors in a way that we do not have.
    """
    settings = settings_in_folder(folder)
    named = settings.get("similarity_fn_name") or "cosine"  # the library's default
    if named not in ("cosine", "dot"):
        if otherwise is not None:
            return otherwise
        raise InputError(
            f"{folder} compares vectors by {named!r} (similarity_fn_name), and polyagents has dot and cosine; train "
            f"from its encoder, with --backbone."
        )
    return "cosine" if "Normalize" in modules_in(folder) else str(named)


def lengths_of(folder: str) -> tuple[int | None, int | None]:
    """Return the tokens of the longest query and of the longest document; None if nothing limits them.

    Args:
        folder: of the encoder: the folder itself, or its module Transformer's.
    """
    names = [*sorted(glob.glob("sentence_*_config.json", root_dir=folder))[:1], TOKENIZER, CONFIG]
    files = {name: read_folder_json(folder, name) for name in names if os.path.exists(os.path.join(folder, name))}
    own = files.get(names[0], {})
    if not all(fits(file, dict[str, Any]) for file in files.values()) or own.get("processing_kwargs"):
        raise damaged_folder(folder, "lengths of texts")
    tokenizer, positions = files.get(TOKENIZER, {}).get("model_max_length"), files.get(CONFIG, {}).get(POSITIONS)
    given = [own["max_seq_length"]] if own.get("max_seq_length") is not None else [tokenizer, positions]
    tasks = [own.get("query_length"), own.get("document_length")]
    if not fits([*given, *tasks], list[float | None]):
        raise damaged_folder(folder, "lengths of texts")
    longest = min((length for length in given if length is not None and length > 0), default=UNLIMITED)
    query, document = (longest if length is None else length for length in tasks)
    return (int(query) if query < UNLIMITED else None), (int(document) if document < UNLIMITED else None)


def truncation_side_of(folder: str) -> Any:
    """Return the side where the tokenizer of a folder truncates a text, right or left."""
    settings = read_folder_json(folder, TOKENIZER) if os.path.exists(os.path.join(folder, TOKENIZER)) else {}
    return settings.get("truncation_side", "right") if isinstance(settings, dict) else "right"


def settings_in_folder(folder: str) -> dict[str, Any]:
    """Read the settings of the whole model; none if there is no such file."""
    if not os.path.exists(os.path.join(folder, SETTINGS)):
        return {}
    settings = read_folder_json(folder, SETTINGS)
    if not isinstance(settings, dict) or not fits(settings.get("prompts") or {}, dict[str, str | None]):
        raise damaged_folder(folder, SETTINGS)
    return settings


def prompts_of(folder: str) -> dict[str, str]:
    """Return our flags for the prompts of a folder's model; none if it has no prompts."""
    settings = settings_in_folder(folder)
    prompts: dict[str, str | None] = settings.get("prompts") or {}
    default = prompts.get(str(settings.get("default_prompt_name")))
    found = {}
    for flag, names in (("context_prompt", CONTEXT_PROMPTS), ("candidate_prompt", CANDIDATE_PROMPTS)):
        prompt = next((prompts[name] for name in names if prompts.get(name) is not None), default)
        if prompt:
            found[flag] = prompt
    return found


def read_folder_json(folder: str, name: str) -> Any:
    """Read a JSON file of the folder."""
    path = os.path.normpath(os.path.join(folder, name))
    if os.path.commonpath([os.path.abspath(folder), os.path.abspath(path)]) != os.path.abspath(folder):
        raise damaged_folder(folder, name)
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise damaged_folder(folder, name) from error


def damaged_folder(folder: str, name: str) -> InputError:
    """Build the error for a folder whose file, or what is in it, cannot be read."""
    return InputError(
        f"--backbone {folder} is a folder of sentence-transformers whose {name} cannot be read; download it again, or "
        f"give --reduction-type."
    )
