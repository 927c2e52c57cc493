"""Lower-cased word pieces, as BERT's, for backbones that start from random weights."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers


def bert_tokenizer(vocabulary: dict[str, int] | None) -> Tokenizer:
    """Lower-cased word pieces, as BERT's."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer
