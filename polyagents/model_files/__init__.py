"""How a model comes from a disk, a hub, sentence-transformers or ParlAI, and goes there."""
