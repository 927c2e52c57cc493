"""Measurements of polyagents, side by side with its alternatives; only commands that measure import this package."""
