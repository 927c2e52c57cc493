"""The special tokens: marks of the start and end of texts, line ends and padding."""

from dataclasses import dataclass

MASK_TOKENS = ("<mask>", "[MASK]")  # what hides a word, in the vocabularies of RoBERTa's kin and of BERT's


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer; missing ones are added.

    `start` and `end` are the paper's [S] around every text: [CLS] and [SEP] for BERT, the end-of-text token on both
    sides for GPT-2. `newline` separates utterances (paper v1 4.5); byte-level tokenizers have a token for it.
    """

    pad: str
    start: str
    end: str
    newline: str
