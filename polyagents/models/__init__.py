"""The architectures: tensors in, tensors out. Nothing here knows files, texts or ParlAI."""
