"""Candidates encoded in advance, on disk or in memory, searched exactly or approximately."""
