"""The agents for ParlAI: its messages in, rankings out."""
