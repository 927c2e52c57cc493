"""Everything that knows ParlAI: the agents, their flags, its training loop, and patches for today's libraries."""
