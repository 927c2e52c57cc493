"""Writes a model as a Hugging Face folder: config.json, model.safetensors and the tokenizer's files."""

import os

import torch
import transformers

from polyagents.files.atomic import atomic_folder
from polyagents.text.tokenizer import RankingTokenizer

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def write_folder(
    model: "transformers.PreTrainedModel", tokenizer: RankingTokenizer, folder: str, again: bool = False
) -> None:
    """Write all files atomically, the weights last, into a new folder, or over those of an earlier call (`again`)."""
    if tokenizer.parlai is not None:
        # Pieces that ParlAI's dictionary lacks get embeddings, equal to the unknown token's.
        model.resize_token_embeddings(tokenizer.compiled.get_vocab_size(), mean_resizing=False)
        weight: torch.Tensor = model.get_input_embeddings().weight  # type: ignore[assignment]
        with torch.no_grad():
            weight[len(tokenizer) :] = weight[tokenizer.id_of(tokenizer.unknown)]
    with atomic_folder(folder, "convert_weights", lambda there: again and {*os.listdir(there)} <= FILES) as temporary:
        model.save_pretrained(temporary)
        tokenizer.to_transformers().save_pretrained(temporary)
