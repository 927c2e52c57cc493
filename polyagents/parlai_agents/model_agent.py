"""How an agent comes by its model: what it starts from, what that decides, and how it is built."""

from typing import Any

import torch
from parlai.core.opt import Opt
from parlai.utils import logging
from parlai.utils.distributed import num_workers
from torch import nn

from polyagents.arguments import AUTO
from polyagents.errors import InputError
from polyagents.models import output_scaling
from polyagents.models.encoder import Encoder
from polyagents.parlai_agents import flags, initial_weights
from polyagents.parlai_agents.base_agent import BaseAgent
from polyagents.parlai_agents.task_reader import TaskReader
from polyagents.parlai_agents.train_loop import CHECKPOINT, is_training_run
from polyagents.parlai_files.parlai_weights import ParlaiModel
from polyagents.ranking.building import build_encoder, build_model, settings_of
from polyagents.ranking.ranking_model import RankingModel
from polyagents.training import distributed


class ModelAgent(BaseAgent):
    """An agent around a `RankingModel`.

    Attributes:
        ranking: the model that all clones share, with its tokenizer and its options.
        parlai_model: weights of ParlAI's own agents that are to be loaded; None for all others, and once they are.
        resumed: what a resumed run draws from (checkpoint.py); None for a new one.
    """

    ranking: RankingModel
    parlai_model: ParlaiModel | None
    resumed: dict[str, Any] | None = None

    def _decide_start(self, opt: Opt) -> ParlaiModel | None:
        """Check what is to be loaded, before anything is built, and let it decide its flags."""
        file = self._checked_start(opt)
        self._check_same_start(file, opt)
        model = initial_weights.decide_flags(file, opt, self.architecture)
        flags.check_not_reserved(opt)
        alone = opt.get("batchsize", 1) == 1 and num_workers() == 1
        if is_training_run(opt) and alone and opt["candidates"] == "batch":
            raise InputError(
                "--candidates batch takes the other labels of the batch as negatives, and --batchsize 1 has none; give "
                "--batchsize (the paper: 512 on ConvAI2, 256 elsewhere), or --candidates inline."
            )
        return model

    def build_model(self) -> nn.Module:
        """TorchRankerAgent: the architecture, with pretrained weights unless a model file brings its own."""
        file, _ = self._get_init_model(self.opt, None)
        if self.opt.get("seed") is not None:  # ParlAI seeds only after the model is made
            torch.manual_seed(self.opt["seed"])
        settings, training = settings_of(self.architecture, self.opt), is_training_run(self.opt)
        config, weights = initial_weights.backbone_of(self.opt, self.dict, self.parlai_model, file is not None)
        encoder = build_encoder(settings, self.dict.ready, training, config, weights)
        self.dict.note_backbone(encoder.backbone)
        if settings.ranking.output_scaling == AUTO:
            self._scale_outputs(encoder)
        self.ranking = build_model(encoder, self.dict.ready, settings)
        return self.ranking.module

    def _scale_outputs(self, encoder: Encoder) -> None:
        """Measure the factor on what the task brings for training; M.opt keeps it."""
        if self.opt.get("interactive_mode") or not self.opt.get("task"):
            raise InputError("--output-scaling auto measures what a task trains on, and here is none; give a number.")
        pairs = TaskReader(Opt(self.opt | {"datatype": "train"}), seed=0).read(output_scaling.EXAMPLES)
        tokenizer = self.dict.ready
        texts = [tokenizer.context(tokenizer.encode([pair.context])[0], self.text_truncate) for pair in pairs]
        labels = tokenizer.encode([pair.label for pair in pairs if pair.label])
        texts += [tokenizer.candidate(ids, self.label_truncate) for ids in labels]
        if not texts:
            raise InputError(f"--output-scaling auto finds no texts in --task {self.opt['task']}; give a number.")
        # One factor for all processes: machines round differently.
        factor = distributed.gathered(output_scaling.factor(encoder, texts, tokenizer.pad_id))[0]
        logging.info(f"--output-scaling auto: {factor}, for a deviation of {output_scaling.BERT_DEVIATION}")
        encoder.output_scaling = self.opt["output_scaling"] = factor

    def build_criterion(self) -> nn.Module:
        """TorchRankerAgent wants a module; the loss is `losses.ranking_loss`."""
        return nn.Identity()

    def load(self, path: str) -> dict[str, Any]:
        """BaseAgent's; what a resumed run draws from is kept until everything else is built."""
        states = super().load(path)
        file = self.opt.get("model_file")
        if path in (file, f"{file}{CHECKPOINT}"):  # not those of another run's model
            self.resumed = states.get("draws")
        return states

    def _read(self, path: str) -> dict[str, Any]:
        if self.parlai_model is None:
            return super()._read(path)
        weights, self.parlai_model = self.parlai_model.state(), None
        if getattr(self.module, "codes", None) is not None:  # ParlAI's pretrained poly-encoders have none
            weights.setdefault("codes", self.module.codes.data)
        return {"model": weights}
