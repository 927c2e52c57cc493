"""The loop of `Ranker.train`: examples, schedule, validation, callbacks and files; and the start of every run."""
