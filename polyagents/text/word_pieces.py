"""Lower-case word pieces like BERT's, learnt from a task for backbones that start from random weights."""

from collections.abc import Collection

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from polyagents.text.tokenizer import RankingTokenizer, SpecialTokens

SIZE = 30_522  # BERT's; a small task has fewer word pieces to offer


def learn_word_pieces(lines: Collection[str]) -> RankingTokenizer:
    """Learn a vocabulary; the same lines give the same one in every run."""
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
