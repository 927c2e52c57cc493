"""Training: losses, gradient cache, several processes, teachers, hard negatives, and the loop of Ranker.train."""
