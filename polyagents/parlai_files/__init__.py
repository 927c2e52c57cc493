"""Reads models of ParlAI's own agents, without ParlAI, and writes them."""
