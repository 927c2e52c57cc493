"""What the corpora of response selection have in common, whose files are lines of a label, a context and a reply."""
