"""How hypothesis draws in this tree: the same inputs each time, however slow the machine."""

from hypothesis import HealthCheck, settings


def budget(examples):
    """Settings of a test with this many drawn inputs."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
