"""Texts and token ids: tokenizers, special tokens, vocabularies."""
