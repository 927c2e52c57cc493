"""How an agent gets its model: which weights it starts from, which flags they decide, and how it is built."""

from typing import Any

from parlai.core.opt import Opt
from parlai.utils import logging
from parlai.utils.distributed import num_workers
from torch import nn

from polyagents.arguments import AUTO
from polyagents.backends.fastest import use_backend
from polyagents.backends.runtimes import TORCH
from polyagents.errors import InputError
from polyagents.model_files import initial_weights
from polyagents.models import output_scaling
from polyagents.models.architecture import find, reads_together
from polyagents.parlai_agents import flags
from polyagents.parlai_agents.base_agent import BaseAgent
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.parlai_files.parlai_weights import ParlaiModel
from polyagents.parlai_patches.train_loop import is_training_run
from polyagents.ranking.ranking_model import RankingModel
from polyagents.surroundings import undisturbed
from polyagents.training_loop.schedule import ENDING
from polyagents.training_loop.starting_model import fitting_weights, starting_model
from polyagents.training_loop.training_options import papers_warm_up


class ModelAgent(BaseAgent):
    """An agent around a `RankingModel`, which all clones share.

    Attributes:
        parlai_model: weights of ParlAI's own agents that are to be loaded; None for all others, and after loading.
        resumed: the random states of a resumed run (training_files.py); None for a new one.
    """

    ranking: RankingModel
    parlai_model: ParlaiModel | None
    resumed: dict[str, Any] | None = None

    def _decide_start(self, opt: Opt) -> ParlaiModel | None:
        """Check what is to be loaded, before anything is built, and let it decide its flags."""
        start = self._checked_start(opt)
        model = initial_weights.decide_flags(start, opt, self.architecture)
        flags.check_not_reserved(opt)
        if not is_training_run(opt):
            return model
        flags.check_metric(opt)
        if not initial_weights.is_own_state(start, opt):  # a run of an earlier version may be resumed
            flags.check_contexts(opt)
        if opt.get("warmup_updates") is None and opt["lr_scheduler"] not in ENDING:
            opt["warmup_updates"] = papers_warm_up(find(self.architecture))
        if opt.get("batchsize", 1) == 1 and num_workers() == 1 and opt["candidates"] == "batch":
            raise InputError(
                "--candidates batch takes the other labels of the batch as negatives, and --batchsize 1 has none; give "
                "--batchsize (the paper: 512 on ConvAI2, 256 elsewhere), or --candidates inline."
            )
        if backend_of(opt) not in (TORCH, AUTO):
            raise InputError(
                f"--backend {backend_of(opt)} has no gradients; train without it, and export the trained model."
            )
        lacks_negatives = opt["candidates"] == "inline" and not reads_together(find(self.architecture))
        if opt.get("every_utterance") and lacks_negatives:
            raise InputError(
                "--candidates inline takes each example's own candidates, and the targets that --every-utterance adds "
                "have none; give --candidates batch, or batch+inline."
            )
        return model

    @undisturbed(gradients=True)
    def build_model(self) -> nn.Module:
        """TorchRankerAgent: build the architecture, with pretrained weights unless a model file has its own."""
        file, _ = self._get_init_model(self.opt, None)
        known = self.dict.config if self.parlai_model is None else self.parlai_model.config()
        is_measured = self.opt.get("output_scaling") == AUTO
        training = is_training_run(self.opt)
        self.ranking = starting_model(
            self.architecture, self.opt, self.dict.ready, known, file is not None, training, self._read_texts
        )
        if is_measured:
            deviation = f"for a deviation of {output_scaling.BERT_DEVIATION}"
            logging.info(f"--output-scaling auto: {self.opt['output_scaling']}, {deviation}")
        self.dict.note_backbone(self.ranking.context_encoder.backbone)
        return self.ranking.module

    def _read_texts(self, count: int) -> list[tuple[str, str]]:
        """Read the first training examples of the task, which `--output-scaling auto` measures."""
        flag, task = "--output-scaling auto", self.opt.get("task")
        if self.opt.get("interactive_mode") or not task:
            raise InputError(f"{flag} measures the training examples of a task, and no task is given; give a number.")
        pairs = TaskReader(Opt(self.opt | {"datatype": "train"}), seed=0).read(count)
        if not pairs:
            raise InputError(f"{flag} finds no texts in --task {task}; give a number.")
        return [(pair.context, pair.label) for pair in pairs]

    def build_criterion(self) -> nn.Module:
        """Return a module, which TorchRankerAgent requires; the loss is `losses.ranking_loss`."""
        return nn.Identity()

    def load(self, path: str) -> dict[str, Any]:
        """Load as BaseAgent; the random states of a resumed run are kept until everything else is built."""
        states = super().load(path)
        backend = backend_of(self.opt)
        if backend != AUTO or not (is_training_run(self.opt) or self.use_cuda):  # ParlAI moves the model afterwards
            use_backend(self.ranking, path, backend)
        if initial_weights.is_own_state(path, self.opt):  # another run's model decides none
            self.resumed = states.get("draws")
        return states

    def _read(self, path: str) -> dict[str, Any]:
        if self.parlai_model is None:
            states = super()._read(path)
            is_another = initial_weights.trained_as(path) not in (None, self.architecture)
            weights = fitting_weights(states["model"], path, self.architecture, self.module)
            return {"model": weights} if is_another else states
        weights, self.parlai_model = self.parlai_model.state(), None
        return {"model": weights}


def backend_of(opt: Opt) -> str:
    """Return the runtime of the encoders that the command line names; a model's file does not decide it."""
    return str(opt.get("override", {}).get("backend", TORCH))
