"""A Ray cluster that encodes candidates: Ray Data distributes the parts of a build, and repeats those that fail.

Its actors each load the model once and have a GPU if the cluster has any at the start, otherwise a core. As many of
them run as there is room for; the pool grows and shrinks with the cluster. A part whose actor or machine is lost is
given to another one, which keeps it if it was finished.
"""

import contextlib
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path
from types import TracebackType
from typing import Any

from polyagents.console import number_of, say
from polyagents.errors import InputError, first_line
from polyagents.faults import users_fault
from polyagents.index.builder import BuildPart
from polyagents.index.texts import Texts
from polyagents.properties import cached_property
from polyagents.ranker import Ranker
from polyagents.ranking.two_tower_model import TwoTowerModel, two_towers
from polyagents.zoo.resolve import zoo_file

Work = Callable[[TwoTowerModel, Texts, BuildPart], None]
# Parts that an actor has: one that it works on, and one that waits for it. Ray grows the pool only with at least two.
IN_FLIGHT = 2
RETRIES = 3  # retries of a part whose actor died; Ray's own default is to retry forever
CONNECTING, WAITING = 10.0, 60.0  # seconds
SHOWN = 1_000  # characters of an error
ENDED = object()  # what comes after the last row
AGAIN = "run the same command again, which keeps finished work."
TOKEN = Path.home() / ".ray" / "auth_token"


class RayCluster:
    """A connection to a Ray cluster whose machines have polyagents and see the model's file at the same path.

    >>> with RayCluster("auto", "runs/poly") as cluster:
    ...     ranker.index("replies.txt", "replies.index", cluster=cluster)
    """

    def __init__(self, address: str, model_file: str, overrides: Mapping[str, Any] | None = None):
        """Connect.

        Args:
            address: "auto" for the cluster that this machine is part of, "HOST:PORT" of its head, or "local" for a
                cluster of this machine's own cores that ends with this process.
            overrides: options that differ from the training run's, as `Ranker.load` takes them.

        Raises:
            InputError: there is no cluster, or it refuses the connection.
        """
        require_head(address)
        # Read when ray is imported. The second one hides Ray's messages about actors that are restarted.
        for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_BACKEND_LOG_LEVEL", "fatal")):
            os.environ.setdefault(name, value)
        if ":" in address and TOKEN.exists():  # as Ray itself does for "auto": a head with this file requires it
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        import ray
        import ray.data

        self.model_file, self.overrides = os.path.abspath(zoo_file(model_file)), dict(overrides or {})
        own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, **own)
        except (OSError, RuntimeError, ValueError) as error:  # a ConnectionError is an OSError
            raise InputError(f"--ray {address} cannot be used: {' '.join(str(error).split())[:300]}") from error
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # we report errors ourselves
        ray.data.DataContext.get_current().enable_progress_bars = False

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        ray.shutdown()

    def map(self, work: Work, texts: Texts, parts: Sequence[BuildPart]) -> Iterator[BuildPart]:
        """Do work with each of the parts, on any machine, and yield them, each as soon as it is done."""
        import ray
        import ray.data
        from ray.util.annotations import RayDeprecationWarning

        if not parts:
            return
        everything = ray.put((work, texts))  # stored once, also for actors that are started later
        rows = ray.data.from_items([{"place": place} for place in range(len(parts))], override_num_blocks=len(parts))
        kind = "GPU" if ray.cluster_resources().get("GPU") else "CPU"
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=len(parts), max_tasks_in_flight_per_actor=IN_FLIGHT)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RayDeprecationWarning)  # of max_task_retries; setup.py ends before 2.64
            done = rows.map(
                Actor,  # type: ignore[arg-type]  # Ray makes one for each of its processes, and calls that
                fn_constructor_args=([everything], list(parts), self.model_file, self.overrides),
                compute=pool,
                num_cpus=1,
                num_gpus=1 if kind == "GPU" else 0,
                max_task_retries=RETRIES,
            )
        answers, left = iter(done.iter_rows()), set(range(len(parts)))
        with reporting_waits(kind):
            row = next_of(answers)
        while row is not ENDED:
            place = place_of(row, left)
            left.remove(place)
            yield parts[place]
            row = next_of(answers)
        if left:
            raise InputError(f"The Ray cluster ended without {len(left)} of {number_of(len(parts), 'part')}; {AGAIN}")


def next_of(rows: Iterator[Any]) -> Any:
    """Return the next row, or ENDED; what Ray prints meanwhile of actors that died goes to stderr.

    Raises:
        InputError: the cluster gave up.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return next(rows, ENDED)
    except Exception as error:  # Ray's own, gRPC's and Arrow's, and whatever a row was pickled with
        raise InputError(
            f"The Ray cluster gave up: {last_line(error)[:SHOWN]} A process that dies {RETRIES + 1} times over one "
            f"part may have too little memory: each holds the model. Finished work is kept."
        ) from error


def place_of(row: Any, left: Set[int]) -> int:
    """Return the place of the part that a row of the cluster says is done, of those `left`.

    Raises:
        InputError: the actor says that it could not, or the row is not an actor's.
    """
    place, fault = (row.get("place"), row.get("fault")) if type(row) is dict else (None, None)
    if isinstance(fault, str) and fault:
        raise InputError(" ".join(fault.split())[:SHOWN])
    if fault != "" or type(place) is bool or not isinstance(place, Integral) or place not in left:
        raise InputError(f"The Ray cluster sent an answer that no actor of polyagents gave, or gave it twice; {AGAIN}")
    return int(place)


@contextlib.contextmanager
def reporting_waits(kind: str) -> Iterator[None]:
    """Say that a cluster has no free CPU or GPU (`kind`) if that takes long; Ray itself waits without a word."""
    import ray

    def tell() -> None:
        if ray.available_resources().get(kind, 0.0) < 1.0:
            say(f"Waiting for a free {kind} of the Ray cluster, or for its actors to load the model.")

    timer = threading.Timer(WAITING, tell)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Actor:
    """The worker on a machine; it loads everything with its first part, so that errors can be reported."""

    def __init__(self, everything: list[Any], parts: Sequence[BuildPart], model_file: str, overrides: dict[str, Any]):
        self.everything, self.parts, self.model_file, self.overrides = everything, parts, model_file, overrides
        self.work_and_texts: tuple[Work, Texts] | None = None

    @cached_property
    def model(self) -> TwoTowerModel:
        """The model that encodes, in this process."""
        return two_towers(Ranker.load(self.model_file, **self.overrides).model)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Do the work with one part; an error becomes a sentence, since Ray does not keep the types of errors."""
        fault = ""
        try:
            if self.work_and_texts is None:
                import ray

                self.work_and_texts = ray.get(self.everything[0])
            work, texts = self.work_and_texts
            work(self.model, texts, self.parts[row["place"]])
        except Exception as error:
            said = users_fault(error) or f"{type(error).__name__}: {first_line(error)}"
            fault = f"On {socket.gethostname()}: {said}"
        return {"place": row["place"], "fault": fault}


def require_head(address: str) -> None:
    """Check that something listens at HOST:PORT; Ray itself would try again for minutes.

    Raises:
        InputError: nothing listens, or Ray Data cannot work through such an address.
    """
    if address.startswith("ray://"):
        raise InputError(
            f"--ray {address}: Ray Data does not run through Ray's client; run this on a machine of the cluster, with "
            f"--ray auto (ray job submit does that from outside)."
        )
    host, colon, port = address.rpartition(":")
    if not colon:
        return  # a word such as "auto", which Ray interprets
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECTING).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"No Ray cluster at {address} ({first_line(error)}); start one with ray start --head, or give --ray local "
            f"for this machine's cores."
        ) from error


def last_line(error: Exception) -> str:
    """Return the last line of Ray's message that is not empty: the error itself, below the traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
