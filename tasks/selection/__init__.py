"""The common parts of response selection corpora, whose files are lines of a label, a context and a reply."""
