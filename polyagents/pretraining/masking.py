"""Masks tokens for a model to guess, and chooses their replacements (Devlin et al. 2018; paper 4.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import torch
from tokenizers import Tokenizer
from torch import Tensor

from polyagents.models.tokens import AnyTokens

CHOSEN = 0.15  # of all tokens that are text
MASKED, REPLACED = 0.8, 0.1  # of the chosen ones: [MASK], a random token; the rest stay as they are


@dataclass(frozen=True)
class MaskingVocabulary:
    """The facts about a vocabulary of V tokens that masking needs.

    Attributes:
        mask_id: id of the token that hides another.
        is_text: [V], False for special tokens.
        starts_word: [V], False for tokens that continue a word.
    """

    mask_id: int
    is_text: Tensor
    starts_word: Tensor

    @classmethod
    def of(cls, tokenizer: Tokenizer, mask: str, special: Sequence[str]) -> "MaskingVocabulary":
        """Describe a tokenizer's vocabulary; `special` tokens, and those that it calls special, are never guessed."""
        tokens = [tokenizer.id_to_token(number) or "" for number in range(tokenizer.get_vocab_size())]
        never = {*special, mask, *(str(token) for token in tokenizer.get_added_tokens_decoder().values())}
        is_text = torch.tensor([token not in never for token in tokens])
        return cls(tokens.index(mask), is_text, torch.tensor(starts(tokens)))


def starts(tokens: Sequence[str]) -> list[bool]:
    """Return whether each token begins a word: WordPiece marks continuations, other vocabularies mark beginnings."""
    for mark in ("\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}", "\N{LOWER ONE EIGHTH BLOCK}"):
        if sum(token.startswith(mark) for token in tokens) > 1:
            return [token.startswith(mark) for token in tokens]
    return [not token.startswith("##") for token in tokens]


def mask(
    tokens: AnyTokens, vocabulary: MaskingVocabulary, generator: torch.Generator, whole_words: bool = False
) -> tuple[AnyTokens, Tensor]:
    """Hide tokens of a batch [B, T] on the CPU.

    Args:
        whole_words: choose words with all of their pieces; the share of tokens stays the same.

    Returns:
        The batch with hidden tokens, and which tokens were chosen, [B, T].
    """
    drawn = torch.rand(3, *tokens.ids.shape, generator=generator)
    choice = drawn[0]
    if whole_words:
        # All pieces of a word look at the number that was drawn for its first one.
        first = vocabulary.starts_word[tokens.ids] | ~vocabulary.is_text[tokens.ids]
        places = torch.arange(tokens.ids.size(1)).expand_as(tokens.ids)
        choice = choice.gather(1, torch.where(first, places, 0).cummax(1).values)
    chosen = (choice < CHOSEN) & tokens.mask & vocabulary.is_text[tokens.ids]
    ordinary = vocabulary.is_text.nonzero().flatten()
    other = ordinary[(drawn[1] * len(ordinary)).long()]
    hidden = torch.where(drawn[2] < MASKED, vocabulary.mask_id, tokens.ids)
    hidden = torch.where((drawn[2] >= MASKED) & (drawn[2] < MASKED + REPLACED), other, hidden)
    return changed(tokens, ids=torch.where(chosen, hidden, tokens.ids)), chosen
