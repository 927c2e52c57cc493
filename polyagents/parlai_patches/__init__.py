"""Patches with which ParlAI runs our agents: for today's libraries, its training loop, its scripts and its worlds."""
