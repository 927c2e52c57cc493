"""The world of a pre-training agent and its task: a window of examples is read, and each parley is one update."""

import functools
from collections.abc import Callable
from typing import Any

from parlai.core.exceptions import StopTrainException
from parlai.core.opt import Opt
from parlai.core.worlds import World
from parlai.scripts import eval_model, train_model
from parlai.utils.distributed import get_rank, num_workers

from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.parlai_agents.task_reader import Position, TaskReader
from polyagents.parlai_patches.train_loop import is_training_run
from polyagents.parlai_patches.wrapped import wrap

WINDOW = 8_192  # messages; twenty updates of 32,000 tokens, and padding of a hundredth (docs/pretraining.md)


class PretrainWorld(World):
    """A world of one task and a pre-training agent."""

    def __init__(self, opt: Opt, agent: Any):
        super().__init__(opt, [agent])
        self.agent = agent
        self.is_training = is_training_run(opt)
        self.before_the_end: Callable[[], None] | None = None  # of the loop that trains in it (train_loop.py)
        self._open()

    def _open(self) -> None:
        """Open the task at its beginning, or where the run was."""
        self.reader = TaskReader(self.opt, self.agent.seed + get_rank() if self.is_training else 0)
        self.plan: list[Any] = []
        self.first = self.position = self.agent.position if self.is_training else Position()
        self.evaluated = self.exs = 0
        self.size = WINDOW
        if self.is_training:
            self.size = min(WINDOW, -(-self.reader.num_examples() // num_workers()) or WINDOW)
            self.reader.skip(self.position.windows * self.size)
        elif self.opt.get("num_examples", -1) > 0:  # eval_model would count chunks
            raise InputError(
                "polyagents:Pretrain does not support --num-examples, since it evaluates windows; remove the flag."
            )
        elif self.opt.get("validation_max_exs", -1) > 0:
            self.size = min(WINDOW, -(-self.opt["validation_max_exs"] // num_workers()))

    def parley(self) -> None:
        """Do one update of training, or one batch of an evaluation."""
        if self.is_training:
            self._train()
        else:
            self._evaluate()
        self.total_parleys += 1

    def _train(self) -> None:
        limit = self.opt.get("max_train_steps", -1)
        if 0 < limit <= self.position.total:
            raise StopTrainException(f"all of --max-train-steps {limit}, which are done")
        while not self.plan:
            self._read_window()
        now, size = self.position, len(self.plan)
        update, self.position = self.plan[now.updates], Position(now.windows, now.updates + 1, size, now.total + 1)
        if self.position.updates == size:
            self.position, self.plan = Position(now.windows + 1, total=now.total + 1), []
        self.agent.position = self.position  # set before the update, which may be the last one of the schedule
        self.agent.train_update(update, now.total)

    def _read_window(self) -> None:
        """Read the next window and plan its updates; a window without pairs is skipped, except the very first.

        An InputError says if a resumed run's has another number of updates than before.
        """
        now = self.position
        self.plan = self.agent.plan(self.reader.read(self.size), now.windows)
        if now.of and now.of != len(self.plan):
            raise InputError(
                f"The checkpoint was saved after {now.updates} of {number_of(now.of, 'update')} of a window, which has "
                f"{len(self.plan)} with these flags; give --batch-tokens, --chunk-tokens, --text-truncate, "
                f"--label-truncate and as many processes as before, or start another run with --init-model."
            )
        if not self.plan:
            self.position = Position(now.windows + 1, total=now.total)

    def _evaluate(self) -> None:
        if not self.plan:
            pairs = self.reader.read(self.size)
            self.plan, self.exs = self.agent.plan_evaluation(pairs), len(pairs)
        if self.plan:
            self.agent.eval_update(self.plan.pop(0), self.evaluated)
            self.evaluated += 1
        if not self.plan:  # the whole window, since ParlAI would otherwise end within one, at its longest texts
            self.agent.count(self.exs)

    def epoch_done(self) -> bool:
        """Return whether an evaluation has ended; training has no end of its own."""
        return not self.is_training and not self.plan and self.reader.at_end()

    def __exit__(self, error_type: Any, *error: Any) -> bool:
        """End a run, at its end or after an error."""
        if error_type is None and self.before_the_end is not None:
            self.before_the_end()
        return bool(super().__exit__(error_type, *error))

    def updates_done(self) -> int:
        """Return the updates of the whole training; ParlAI's own count is in another file than the weights."""
        return self.position.total

    def epochs_before(self) -> float:
        """Return the epochs of the whole training, on all processes, before this process began."""
        return num_workers() * self._epochs(float(self.first))

    def get_total_exs(self) -> int:
        """Return the messages that updates have been made of since this process began."""
        return round(self._windows() * self.size)

    def get_total_epochs(self) -> float:
        """Return the epochs since this process began; 0 if the task does not know its size."""
        return self._epochs(self._windows())

    def _epochs(self, windows: float) -> float:
        size = self.reader.num_examples()
        return windows * self.size / size if size else 0.0

    def _windows(self) -> float:
        """Return the windows since this process began, with the finished part of the current one."""
        return float(self.position) - float(self.first)

    def num_examples(self) -> int:
        """Return the number of examples of the task."""
        return self.reader.num_examples()

    def report(self) -> dict[str, Any]:
        """Return the agent's metrics."""
        return dict(self.agent.report())

    def reset(self) -> None:
        """Start from the beginning, with nothing measured; called before and after an evaluation."""
        self.agent.reset_metrics()
        self._open()


@functools.cache
def patch_worlds() -> None:
    """Give a pre-training agent its world in ParlAI's commands (idempotent)."""
    for script in (train_model, eval_model):
        wrap("create_task", create_world, script)


def create_world(create_task: Any, opt: Opt, agents: Any, *args: Any, **kwargs: Any) -> World:
    """Create a world of ParlAI's, or one for an agent that pre-trains."""
    if getattr(agents, "architecture", None) == "Pretrain":
        return PretrainWorld(opt, agents)
    made: World = create_task(opt, agents, *args, **kwargs)
    return made
