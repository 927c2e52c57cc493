"""Encoders that another runtime computes instead of torch, exported once, next to the model."""
