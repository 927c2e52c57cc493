"""The vocabulary of a model trained from scratch: lower-case BPE (paper v1 4.5), the same for the same text.

It consists of bytes, not letters: any text can be written in it, emoji included, and the library numbers bytes in
order, whereas it numbers letters by a hash table, differently in each run.
"""

from collections.abc import Iterable

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_folder
from polyagents.files.hashing import utf8

# [S] surrounds every text (4.1), [NEWLINE] separates utterances (v1 4.5); the others are BERT's.
SPECIAL = ("[PAD]", "[UNK]", "[S]", "[MASK]", "[NEWLINE]")
SMALLEST = 256 + len(SPECIAL)
LARGEST = 10_000_000  # many times any known model's; the library allocates 45 bytes for each before it reads


def learn_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn a vocabulary; a small text gives fewer entries, as no pair of tokens is merged that occurs only once.

    Memory grows with the number of distinct words, not with the text, which is read once.

    Raises:
        InputError: there is no text.
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
