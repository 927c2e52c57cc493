"""A model as a Hugging Face folder: config.json, model.safetensors and the tokenizer's files."""

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_folder
from polyagents.parlai_agents.dictionary import TextDictionary

MASK_TOKENS = ("<mask>", "[MASK]")  # what hides a word, in the vocabularies of RoBERTa's kin and of BERT's


def write_folder(model: PreTrainedModel, dictionary: TextDictionary, folder: str) -> None:
    """Write all files, each whole or not at all, in place of those that are there; the weights come last."""
    give_rows(model, dictionary)
    try:
        with atomic_folder(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer_of(dictionary).save_pretrained(temporary)
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"{folder} cannot be written ({getattr(error, 'strerror', None) or error}); the files that were there "
            f"before are kept."
        ) from error


def give_rows(model: PreTrainedModel, dictionary: TextDictionary) -> None:
    """Pieces that ParlAI's dictionary lacks, and the tokenizer numbers all the same, get the unknown token's vector."""
    if dictionary.parlai is None:
        return
    assert dictionary.tokenizer is not None
    model.resize_token_embeddings(dictionary.tokenizer.get_vocab_size(), mean_resizing=False)
    weight: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
    with torch.no_grad():
        weight[len(dictionary) :] = weight[dictionary[dictionary.unk_token]]


def tokenizer_of(dictionary: TextDictionary) -> PreTrainedTokenizerFast:
    """The dictionary as transformers has it."""
    unknown = getattr(dictionary.tokenizer.model, "unk_token", None)  # type: ignore[union-attr]
    names = {"pad_token": dictionary.null_token, "cls_token": dictionary.start_token, "sep_token": dictionary.end_token}
    names |= {"unk_token": unknown} if unknown else {}
    mask = next((token for token in MASK_TOKENS if token in dictionary), None)
    names |= {"mask_token": mask} if mask else {}
    return PreTrainedTokenizerFast(tokenizer_object=dictionary.tokenizer, **names)
