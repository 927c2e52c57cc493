"""Candidates encoded ahead: kept on disk or in memory, searched exactly or approximately."""
