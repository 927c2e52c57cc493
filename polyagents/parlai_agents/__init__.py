"""All that knows ParlAI: the agents, their flags, its training loop, and what it needs on today's libraries."""
