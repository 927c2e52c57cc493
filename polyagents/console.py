"""What commands say on standard error; standard output is for results."""

import sys

from tqdm import tqdm


def duration(seconds: float) -> str:
    """41 s, 12 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def say(sentence: str) -> None:
    """To standard error, where progress goes: standard output is for results."""
    tqdm.write(sentence, file=sys.stderr)
