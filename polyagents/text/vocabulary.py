"""Learns vocabularies, from the same text always the same: lower-case BPE (paper v1 4.5), and word pieces.

BPE consists of bytes, not letters: any text can be written in it, emoji included, and the library numbers bytes in
order, whereas it numbers letters by a hash table, differently in each run.
"""

from collections.abc import Collection, Iterable

import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_folder
from polyagents.files.hashing import utf8
from polyagents.text.tokenizer import RankingTokenizer, SpecialTokens

# [S] surrounds every text (4.1), [NEWLINE] separates utterances (v1 4.5); the others are BERT's.
SPECIAL = ("[PAD]", "[UNK]", "[S]", "[MASK]", "[NEWLINE]")
SMALLEST = 256 + len(SPECIAL)
LARGEST = 10_000_000  # many times any known model's; the library allocates 45 bytes for each before it reads


def learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn a vocabulary; a small text gives fewer entries, as no pair of tokens is merged that occurs only once.

    Memory grows with the number of distinct words, not with the text, which is read once. An InputError says if there
    is no text.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    # BERT's: lower case, no accents (as XLM's, which the paper used), Chinese characters apart.
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    some = False

    def watched() -> Iterable[str]:
        nonlocal some
        for text in texts:
            some = some or bool(text.strip())
            yield utf8(text).decode()

    tokenizer.train_from_iterator(watched(), trainer)
    if not some:
        raise InputError("There is no text to learn a vocabulary from; give a task or files that hold some.")
    return tokenizer


def save_vocabulary(tokenizer: Tokenizer, folder: str) -> None:
    """Write a Hugging Face tokenizer atomically."""
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]", "cls_token": "[S]", "sep_token": "[S]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, extra_special_tokens=["[NEWLINE]"])
    with atomic_folder(folder, "build_vocabulary") as temporary:
        fast.save_pretrained(temporary)


SIZE = 30_522  # BERT's; a small task has fewer word pieces to offer


def learn_word_pieces(lines: Collection[str]) -> RankingTokenizer:
    """Learn lower-case word pieces like BERT's, for a small backbone that starts from random weights."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[NEWLINE]"]
    trained = bert_tokenizer(None)
    assert trained.normalizer is not None
    alphabet = sorted(set().union(*map(trained.normalizer.normalize_str, lines)) - {" "})
    # The trainer numbers the pieces ##a, ##b, ... in the order of a hash table, another one in each run, and breaks
    # ties between equally frequent pairs by these numbers; given as special tokens, they are numbered in order.
    fixed = [*special, *(f"##{letter}" for letter in alphabet)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE,
        min_frequency=2,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    trained.train_from_iterator(lines, trainer)
    tokenizer = bert_tokenizer(trained.get_vocab(with_added_tokens=False))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return RankingTokenizer(tokenizer, SpecialTokens(pad="[PAD]", start="[CLS]", end="[SEP]", newline="[NEWLINE]"))


def bert_tokenizer(vocabulary: dict[str, int] | None) -> Tokenizer:
    """Build a tokenizer of lower-case word pieces like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer
