"""Pre-training (paper 4.1): masked words and next utterances, from random or existing weights."""
