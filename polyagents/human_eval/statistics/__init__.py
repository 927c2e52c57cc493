"""What judgements and ratings say: win rates, agreement, a ranking, their intervals, and the report of them."""
