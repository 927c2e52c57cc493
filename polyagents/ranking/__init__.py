"""The model with its tokenizer and its options, which ranks candidates for all callers."""
