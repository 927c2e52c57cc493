"""Decisions: a choice among options with a probability, and an exit if none of them is right."""
