"""Models that ParlAI's own agents wrote, read without ParlAI, and written back."""
