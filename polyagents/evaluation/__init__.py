"""Evaluation of rankings: metrics, their intervals and differences, a report, and files that other tools read."""
