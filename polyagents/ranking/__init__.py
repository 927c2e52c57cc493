"""A model with its tokenizer and its options: what ranks, whoever asks."""
