"""Model folders on the Hugging Face hub, or on the server that HF_ENDPOINT names: download and upload.

`huggingface_hub` does the work, with its cache, its tokens and its environment variables. It is imported only here and
only when a hub is asked, which happens for no name but one that the user has given to `Ranker.from_pretrained` or
`push_to_hub`.
"""

import contextlib
import os
from collections.abc import Iterator

from polyagents.errors import InputError, first_line
from polyagents.model_files.model_folder import CALIBRATION, CARD, CONFIG, TOKENIZER, WEIGHTS
from polyagents.network import is_offline

NEEDED = (CONFIG, WEIGHTS, TOKENIZER)
UPLOADED = (*NEEDED, "tokenizer_config.json", "special_tokens_map.json", CARD, CALIBRATION)


def download(repo_id: str, revision: str | None, token: str | None) -> str:
    """Download a model to the hub's cache, unless it is there already.

    Args:
        revision: a branch, a tag or a commit; None is the main branch.
        token: of a user who may read it; None for the user who is logged in, if any.

    Raises:
        InputError: there is no such model, it lacks a file, or the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    with in_one_sentence(f"{repo_id} is not a folder, and could not be downloaded from the model hub"):
        folder: str = snapshot_download(repo_id, revision=revision, token=token, allow_patterns=[*NEEDED, CALIBRATION])
    missing = [name for name in NEEDED if not os.path.exists(os.path.join(folder, name))]
    if missing:
        raise InputError(
            f"{repo_id} on the model hub has no {missing[0]}, so it is not a ranker that Ranker.push_to_hub "
            f"uploaded. An encoder of another library ranks as it is with Ranker.from_encoder; to train from it, give "
            f"it as --backbone."
        )
    return folder


def download_encoder(name: str) -> str:
    """Download a Hugging Face or sentence-transformers model to the hub's cache, unless it is there already.

    Raises:
        InputError: there is no such model, or the hub does not answer.
    """
    from huggingface_hub import snapshot_download

    is_offline()  # asked first: the client would try for a minute
    with in_one_sentence(f"{name} is not a folder, and could not be had from the model hub"):
        folder = snapshot_download(name, allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"])
        if not any(found.endswith(".safetensors") for found in os.listdir(folder)):
            folder = snapshot_download(name, allow_patterns=["pytorch_model*"])
    return folder


def upload(
    folder: str, repo_id: str, private: bool | None, revision: str | None, commit_message: str, token: str | None
) -> str:
    """Upload a model folder as one commit; arguments as for `Ranker.push_to_hub`. Return the URL of the commit.

    Raises:
        InputError: the hub refuses, or does not answer.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token)
    files = [(name, os.path.join(folder, name)) for name in UPLOADED]
    added = [CommitOperationAdd(name, path) for name, path in files if os.path.exists(path)]
    with in_one_sentence(f"{repo_id} could not be uploaded to the model hub"):
        name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        # Not upload_folder, which may make several commits: no reader should find the weights of one model and the
        # options of another.
        commit = api.create_commit(name, added, commit_message=commit_message, revision=revision)
    return str(commit.commit_url)


@contextlib.contextmanager
def in_one_sentence(what: str) -> Iterator[None]:
    """Turn errors of the hub, its client or the network into one sentence, an InputError."""
    try:
        yield
    except Exception as error:  # the client raises dozens of kinds, by version, its own and two libraries'
        raise InputError(f"{what}: {hub_fault(error)}.") from error


def hub_fault(error: Exception) -> str:
    """Explain an error of the hub or the network, and say what to change."""
    from huggingface_hub import constants, errors

    if constants.HF_HUB_OFFLINE and isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set, so only folders and earlier downloads can be loaded; unset it"
    if isinstance(error, errors.RevisionNotFoundError):
        return "it has no such revision; give an existing branch, tag or commit"
    if isinstance(error, errors.GatedRepoError):
        return "its owner must grant you access first"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository, or it is private; check the name, and log in or give a token"
    return f"{first_line(error)}; check the name, the network and the token"
