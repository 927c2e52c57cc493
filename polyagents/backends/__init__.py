"""Encoders that another runtime computes in place of torch, exported once, next to the model."""
