"""Work for a cluster that its actors die of."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from polyagents.index.builder import ShardWork


@dataclass(frozen=True)
class KilledOnce(ShardWork):
    """Writes a shard, and kills its process before the second one that anybody begins, once; says which began."""

    begun: str = ""

    def __call__(self, model, texts, part):
        with open(self.begun, "a") as file:
            file.write(f"{os.getpid()} {part.start}\n")
        if len(Path(self.begun).read_text().splitlines()) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(model, texts, part)


@dataclass(frozen=True)
class Deadly(ShardWork):
    """Kills whoever does it."""

    def __call__(self, model, texts, part):
        os.kill(os.getpid(), signal.SIGKILL)
