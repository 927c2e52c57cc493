"""Loads models from a disk, a hub, sentence-transformers or ParlAI, and writes them there."""
