"""What makes ParlAI run our agents: patches for today's libraries, its training loop, its scripts and its worlds."""
