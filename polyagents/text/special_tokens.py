"""The tokens that are not text."""

from dataclasses import dataclass

MASK_TOKENS = ("<mask>", "[MASK]")  # what hides a word, in the vocabularies of RoBERTa's kin and of BERT's


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that are not text. A tokenizer that lacks one gets it added.

    `start` and `end` are the paper's [S] around every text: [CLS] and [SEP] for BERT, the end-of-text token on both
    sides for GPT-2. `newline` keeps utterances apart (paper v1 4.5); byte-level tokenizers have one of their own.
    """

    pad: str
    start: str
    end: str
    newline: str
