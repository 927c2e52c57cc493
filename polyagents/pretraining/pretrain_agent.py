"""`-m polyagents:Pretrain`: masked words and next utterances under ParlAI's training loop (paper 4.1; v1 4.5)."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from parlai.core.metrics import AverageMetric, GlobalTimerMetric, SumMetric
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.torch_agent import Output
from parlai.utils.distributed import get_rank, num_workers
from tokenizers import AddedToken
from transformers import AutoModelForMaskedLM

from polyagents.errors import InputError
from polyagents.model_files import initial_weights
from polyagents.model_files.building import check_lengths, vocabulary_of
from polyagents.model_files.saving import write_hugging_face
from polyagents.models.backbone import load_backbone
from polyagents.models.model_options import EncoderOptions, TextOptions
from polyagents.parlai_agents import flags
from polyagents.parlai_agents.base_agent import is_training_command
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_agents.task_reader import Position, TaskReader
from polyagents.parlai_files import parlai_options
from polyagents.parlai_patches import train_loop
from polyagents.parlai_patches.late_metrics import LateAverage, LatePerplexity, Term
from polyagents.pretraining import world
from polyagents.pretraining.joining import Prepared
from polyagents.pretraining.masking import MaskingVocabulary
from polyagents.pretraining.planning import PlanningAgent, Update
from polyagents.pretraining.pretrain_model import WORDS, PretrainModel
from polyagents.pretraining.utterance_relevance import SHARES
from polyagents.surroundings import learning
from polyagents.text.tokenizer import MASK_TOKENS, RankingTokenizer
from polyagents.training import distributed
from polyagents.training.late_values import LateValues
from polyagents.training_loop.training_options import MemoryOptions

FOLDER = ".backbone"  # M.backbone: what --backbone starts the three rankers from


class PretrainDictionary(TextDictionary):
    """A tokenizer with a token for hidden words."""

    def _take(self, tokenizer: RankingTokenizer) -> None:
        if tokenizer.parlai is not None:
            raise InputError(
                f"--backbone {self.opt['backbone']} has ParlAI's dictionary, without a token that hides others; "
                f"convert it to a folder with polyagents convert_weights --to huggingface, and give that folder."
            )
        vocabulary = tokenizer.compiled.get_vocab()
        self.mask_token = next((token for token in MASK_TOKENS if token in vocabulary), MASK_TOKENS[-1])
        if self.mask_token not in vocabulary:
            tokenizer.compiled.add_special_tokens([AddedToken(self.mask_token, special=True, normalized=False)])
        super()._take(tokenizer)


class PretrainAgent(PlanningAgent):
    """Trains a backbone before it is used for ranking; world.py brings the examples, one window at a time."""

    architecture = "Pretrain"

    @staticmethod
    def dictionary_class() -> type[TextDictionary]:
        """TorchAgent: the dictionary with a token for hidden words."""
        return PretrainDictionary

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """Add TorchAgent's flags and ours, with the paper's settings as defaults (4.1)."""
        super().add_cmdline_args(parser, partial_opt=partial_opt)
        for group in (EncoderOptions, TextOptions, MemoryOptions, flags.TargetOptions, flags.PretrainOptions):
            flags.add_options(parser, group)
        parser.set_defaults(
            optimizer="adamw",  # without decay it is Adam; ParlAI's `adam` is AMSGrad
            learningrate=2e-4,
            betas="0.9,0.98",
            weight_decay=0.0,
            gradient_clip=1.0,  # BERT's; the paper names none
            lr_scheduler="invsqrt",
            warmup_updates=2000,  # chosen here, as the paper names none
            train_layers="all",
            dropout=0.1,
        )
        if is_training_command(partial_opt):
            parser.set_defaults(
                validation_metric="ppl",
                validation_every_n_epochs=0.5,
                validation_every_n_secs=3600,  # half an epoch of Reddit takes days
                save_after_valid=True,
                save_every_n_secs=600,
            )
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        training = train_loop.is_training_run(opt)
        self._check(opt, training)
        start, file = self._checked_start(opt), opt.get("model_file")
        self._check_classes(start, opt)
        # ParlAI's flag is not set for checkpoints.
        is_finetune = start not in (None, file, f"{file}{train_loop.CHECKPOINT}")
        super().__init__(opt, shared)
        self.seed = int(opt.get("seed") or 0)
        self.model: Any = self.build_model()
        states = {} if start is None else self.load(start)
        resumes = "position" in states and not is_finetune  # M has no position, unless it is its own checkpoint
        self.position = Position(**states["position"]) if resumes else Position()
        tokenizer = self.dict.ready
        self.vocabulary = MaskingVocabulary.of(
            tokenizer.compiled, self.dict.mask_token, [tokenizer.special.newline, tokenizer.unknown]
        )
        if self.use_cuda:
            self.model.cuda()
        world.patch_worlds()
        if training:
            self._begin(states, is_finetune)

    def _check(self, opt: Opt, training: bool) -> None:
        if opt.get("interactive_mode"):
            raise InputError(
                f"polyagents:Pretrain cannot reply; train a ranker with --backbone {opt.get('model_file')}{FOLDER}, "
                f"and chat with that model."
            )
        if training and opt.get("update_freq", 1) > 1:
            raise InputError(
                "polyagents:Pretrain does not support --update-freq; give the tokens of an update with --batch-tokens."
            )
        if opt.get("num_workers"):
            raise InputError(
                "polyagents:Pretrain does not support --num-workers (it reads the task in windows); remove the flag."
            )
        if training and "ordered" in opt["datatype"]:
            raise InputError(
                f"--datatype {opt['datatype']} reads the task once, but polyagents:Pretrain trains until its flags end "
                f"it; remove the flag: the order follows from --seed."
            )
        if opt.get("every_utterance") and opt["pretrain_task"] == "utterance_relevance":
            raise InputError(
                "--pretrain-task utterance_relevance makes a target of every utterance by itself; remove "
                "--every-utterance, which would bring each dialogue many times."
            )
        for name in ("world_logs", "validation_share_agent"):
            if opt.get(name):
                flag = name.replace("_", "-")
                raise InputError(
                    f"polyagents:Pretrain does not support --{flag} (it produces no replies); remove the flag."
                )

    def _check_classes(self, start: str | None, opt: Opt) -> None:
        """Refuse to resume with a head of another objective."""
        if start is None:
            return
        before = parlai_options.read(start).get("pretrain_task", opt["pretrain_task"])
        if classes_of(before) != classes_of(opt["pretrain_task"]):
            file = start.removesuffix(train_loop.CHECKPOINT)
            raise InputError(
                f"{start} was trained with --pretrain-task {before}, and --pretrain-task {opt['pretrain_task']} has "
                f"other classes; start from --backbone {file}{FOLDER} instead, with a --model-file of its own."
            )

    def _check_validation(self) -> None:
        """Refuse a task without validation data at the start, instead of after the first hour."""
        opt = Opt(self.opt | {"task": self.opt.get("evaltask") or self.opt["task"], "datatype": "valid"})
        if not self._as_asked(TaskReader(opt, 0).read(world.WINDOW), random.Random(0)):
            raise InputError(
                f"Validation finds no pairs of texts for --pretrain-task {self.opt['pretrain_task']} in {opt['task']}; "
                f"give another task with -et."
            )

    def build_model(self) -> PretrainModel:
        """TorchAgent: build the backbone with its heads; it gets weights here unless a model file brings them."""
        training, has_file = train_loop.is_training_run(self.opt), self._get_init_model(self.opt, None)[0] is not None
        torch.manual_seed(self.seed)
        config, weights = initial_weights.backbone_of(self.opt, self.dict.config, has_file)
        vocabulary = vocabulary_of(self.dict.ready)
        lm = load_backbone(self.encoder_options, vocabulary, training, config, weights, AutoModelForMaskedLM)
        self.dict.note_backbone(lm)
        model = PretrainModel(lm, self.encoder_options, classes_of(self.opt["pretrain_task"]))
        texts, labels = self.text_truncate, self.label_truncate  # a pair has both
        check_lengths(model.encoder, self.encoder_options.backbone, texts, labels, (texts or 0) + (labels or 0))
        return model

    def _begin(self, states: dict[str, Any], is_finetune: bool) -> None:
        self._check_validation()
        distributed.same_weights(self.model)
        self._check_backbone()
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        if self.opt["invsqrt_lr_decay_gamma"] <= 0:
            self.opt["invsqrt_lr_decay_gamma"] = self.opt["warmup_updates"]  # ParlAI would do the same with a warning
        was_reset = self.init_optim(
            parameters, states.get("optimizer"), states.get("optimizer_type"), is_finetune=is_finetune
        )
        self.build_lr_scheduler(states, hard_reset=is_finetune or was_reset)
        if self.opt["compile"]:
            self.module.encoder.compile_backbone()
        if self.opt["activation_checkpointing"]:
            self.module.encoder.checkpoint_activations()
        self.begin_run()

    def _check_backbone(self) -> None:
        """Refuse a backbone whose chunks could not be planned by their tokens alone, or whose head has no weights."""
        why = "sees the padding after a text" if self.module.encoder.sees_padding else None
        if not all(bool(torch.isfinite(weight).all()) for weight in self.module.parameters()):
            why = "has weights that are not finite, such as a head for words that its files lack"
        if why:
            raise InputError(
                f"--backbone {self.encoder_options.backbone} {why}, so it cannot be pre-trained here; give one such as "
                f"BERT, RoBERTa or ModernBERT."
            )

    # ---- training and evaluation -----------------------------------------------------------------------------------

    @learning()
    def train_update(self, update: Update, number: int) -> None:
        """Do one step of the optimiser. Its random choices depend on seed, process and number of the update."""
        self.model.train()
        drawn = torch.Generator().manual_seed(hash((self.seed, get_rank(), number)))
        torch.manual_seed(int(torch.randint(2**62, (), generator=drawn)))  # for dropout
        chunks = [self.prepared(chunk, update.objectives, drawn) for chunk in update.chunks]
        guessed = {name: sum(distributed.gathered(targets_in(chunks, name))) for name in update.objectives}
        self.zero_grad()
        results = []
        for chunk in self.on_device(chunks):
            measured = self.model(*chunk)
            # After averaging the gradients, this is the mean over all targets of all processes in this update.
            losses = [loss * num_workers() / max(guessed[name], 1) for name, (loss, _) in measured.items()]
            self.scaler.scale(sum(losses)).backward()
            results.append({name: (loss.detach(), right) for name, (loss, right) in measured.items()})
        self.update_params()
        self._record(update, chunks, results)
        self.count(sum(map(len, update.chunks)))

    def count(self, examples: int) -> None:
        """Count examples for the report."""
        self.global_metrics.add("exs", SumMetric(examples))

    @torch.no_grad()
    def eval_update(self, update: Update, number: int) -> None:
        """Measure one update; the same words are hidden every time."""
        self.model.eval()
        drawn = torch.Generator().manual_seed(number)
        chunks = [self.prepared(chunk, update.objectives, drawn) for chunk in update.chunks]
        self._record(update, chunks, [self.module(*chunk) for chunk in self.on_device(chunks)])

    def _record(self, update: Update, chunks: list[Prepared], results: list[Any]) -> None:
        for objective in update.objectives:
            guessed = targets_in(chunks, objective)
            losses, rights = zip(*(made[objective] for made in results), strict=True)
            values = LateValues({"loss": torch.stack(losses).sum(0, True), "right": torch.stack(rights).sum(0, True)})
            loss, right = Term(values, "loss", 0), Term(values, "right", 0)
            if guessed and objective == WORDS:
                self.global_metrics.add("loss", LateAverage(loss, guessed))
                self.global_metrics.add("ppl", LatePerplexity(loss, guessed))
                self.global_metrics.add("token_acc", LateAverage(right, guessed))
            elif guessed:
                name = "relevance" if self.is_joint else "next_utterance"
                self.global_metrics.add(f"{name}_loss", LateAverage(loss, guessed))
                self.global_metrics.add(f"{name}_acc", LateAverage(right, guessed))
        width = sum(tokens.ids.numel() for tokens, _, _ in chunks)
        real = sum(len(example) for chunk in update.chunks for example in chunk)
        self.global_metrics.add("padding", AverageMetric(width - real, width))
        self.global_metrics.add("tps", GlobalTimerMetric(real))

    # ---- files -----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return BaseAgent's state, and the position in the data."""
        return super().state_dict() | {"position": vars(self.position)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load BaseAgent's state; input and output embeddings stay shared."""
        super().load_state_dict(state_dict)
        self.module.lm.tie_weights()

    def save(self, path: str | None = None) -> None:
        """Save BaseAgent's files, and the folder M.backbone next to M."""
        super().save(path)
        path = path or self.opt.get("model_file")
        if path and not path.endswith(train_loop.CHECKPOINT):
            write_hugging_face(self.module.lm, self.dict.ready, f"{path}{FOLDER}", again=True)

    # ---- ParlAI's own call of an agent, which is not used ----------------------------------------------------------

    def train_step(self, batch: Any) -> Output:
        """Do nothing: TorchAgent's method is abstract, and world.py calls `train_update`."""
        raise InputError("polyagents:Pretrain cannot reply; use it with train_model and eval_model only.")

    eval_step = train_step


def classes_of(pretrain_task: str) -> int:
    """Return the number of classes of a label."""
    return len(SHARES) if pretrain_task == "utterance_relevance" else 2


def targets_in(chunks: Sequence[Prepared], objective: str) -> int:
    """Return how many targets an update has."""
    return sum(len(targets[objective]) for _, targets, _ in chunks)
