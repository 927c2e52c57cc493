"""Statistics of judgements and ratings: win rates, agreement, a ranking, their intervals, and the report."""
