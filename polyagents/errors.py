"""The one exception that means: the user gave something that cannot work."""


class InputError(ValueError):
    """Bad input, said in one sentence: what was given, what is possible, what to change.

    Python callers get a traceback as with any ValueError; the commands print the sentence and exit with code 2
    (`polyagents.faults`).

    >>> try:
    ...     Ranker.load("runs/none")
    ... except InputError as error:
    ...     print(error)
    There is no trained model at runs/none: both runs/none and runs/none.opt are needed. Give the path that was
    --model-file of train_model, or a folder that Ranker.save_pretrained wrote.
    """


class NoTestSplit(InputError):
    """A task has no test set: an error where it is evaluated, and no reason for a training to fail at its end."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a sentence of ours."""
    return str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
