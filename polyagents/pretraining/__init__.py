"""Pre-training (paper 4.1): masked words and next utterances, from nothing or from weights that are there."""
