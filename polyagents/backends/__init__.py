"""Encoders that another runtime computes in place of torch, exported once beside the model."""
