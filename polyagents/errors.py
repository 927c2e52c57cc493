"""The one exception that means: the user gave something that cannot work."""


class InputError(ValueError):
    """Bad input, said in one sentence: what was given, what is possible, what to change.

    Python callers get a traceback as with any ValueError; the commands print the sentence and exit with code 2
    (`polyagents.faults`).
    """


class NoTestSplit(InputError):
    """A task has no test set: an error where it is evaluated, and no reason for a training to fail at its end."""
