"""The tokenizer of a model in the form of a ParlAI dictionary."""

import copy
import os
from collections.abc import Iterable
from typing import Any

from parlai.core.build_data import modelzoo_path
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils.distributed import is_primary_worker
from transformers import PretrainedConfig, PreTrainedModel

from polyagents.backbone_files import config_of
from polyagents.errors import InputError
from polyagents.files.locks import lock_model
from polyagents.model_files.initial_weights import backbone_file
from polyagents.models.backbone import config_values
from polyagents.models.model_options import SCRATCH
from polyagents.parlai_files import bpe_dictionary, parlai_options
from polyagents.parlai_patches.train_loop import is_training_run
from polyagents.text.dictionary_file import DictionaryFile, dictionary_of
from polyagents.text.pretrained import load_tokenizer
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.text.vocabulary import learn_word_pieces
from polyagents.training_loop.starting_model import check_start


class TextDictionary(DictionaryAgent):
    """A `RankingTokenizer` as ParlAI's dictionary.

    It comes from `--dict-file` if that exists (a trained model's `M.dict`), else from `--init-model` or `--backbone`;
    for a `scratch:` backbone it is `--vocabulary`'s, or learnt from the task by ParlAI's own dictionary building.

    Attributes:
        tokenizer: None until it has been learnt.
        backbone_config: the backbone's configuration as plain values; None until there is a backbone.
    """

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """Add only the flags that are read; ParlAI's word dictionary has twenty more."""
        group = parser.add_argument_group("Dictionary Arguments")
        group.add_argument("-df", "--dict-file", help="path to the dictionary file, by default MODEL_FILE.dict")
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        # DictionaryAgent.__init__ would read its own file format and build a word table.
        self.opt = copy.deepcopy(opt)
        self.id = "TextDictionary"
        self.observation = None
        self.tokenizer: RankingTokenizer | None = None
        self.backbone_config: dict[str, Any] | None = None
        self._hold_model()
        self._lines: dict[str, None] = {}  # the texts from which a scratch vocabulary is learnt; a dict keeps the order
        file, backbone = opt.get("dict_file"), opt["backbone"]
        if opt.get("vocabulary") and not backbone.startswith(SCRATCH):
            raise InputError(
                f"--backbone {backbone} has a vocabulary of its own; remove --vocabulary, or give --backbone "
                f"scratch:tiny|mini|base."
            )
        model = opt.get("model_file")
        first = modelzoo_path(opt.get("datapath"), opt.get("init_model"))
        if model and os.path.isfile(model) and "dict_file" not in opt.get("override", {}):
            self.load(dictionary_of(model, file))
        elif file and os.path.exists(file):
            self.load(file)
        elif first:  # its weights know no other vocabulary
            check_start(first)
            self.load(dictionary_of(first, None))
        elif backbone.startswith(SCRATCH) and opt.get("vocabulary"):
            self._take(load_tokenizer(opt["vocabulary"], "--vocabulary"))
        elif backbone.startswith(SCRATCH):
            pass  # the vocabulary is learnt
        elif model := backbone_file(backbone, opt.get("datapath")):
            self.load(f"{model}.dict")
        else:
            self._take(load_tokenizer(backbone))

    @property
    def ready(self) -> RankingTokenizer:
        """The tokenizer; an error if it has not been learnt yet."""
        if self.tokenizer is None:
            raise InputError(
                f"--backbone {self.opt['backbone']} has no vocabulary before training: train_model learns it from the "
                f"task. Train first, or give --model-file of a trained model."
            )
        return self.tokenizer

    @property
    def config(self) -> PretrainedConfig | None:
        """The backbone's configuration; None until there is a backbone."""
        return None if self.backbone_config is None else config_of(self.backbone_config)

    def note_backbone(self, backbone: PreTrainedModel) -> None:
        """Store the configuration of a backbone for the dictionary file."""
        self.backbone_config = config_values(backbone)

    def _hold_model(self) -> None:
        """Lock the model file against other training runs: the dictionary is the first file that a run writes."""
        file = self.opt.get("model_file")
        if file and is_training_run(self.opt) and is_primary_worker():
            self.model_lock = lock_model(file)

    def _take(self, tokenizer: RankingTokenizer) -> None:
        self.tokenizer = tokenizer
        tokenizer.plain = bool(self.opt.get("plain_texts"))  # the history asks for a line end before there is a model

    def __getattr__(self, name: str) -> str:
        """Return a special token by ParlAI's name; there is none before the vocabulary has been learnt."""
        if name == "unk_token":
            return self.ready.unknown
        if name not in ("null_token", "start_token", "end_token"):
            raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)
        return str(getattr(self.ready.special, name.removesuffix("_token").replace("null", "pad")))

    # ---- what TorchAgent asks of a dictionary ----------------------------------------------------------------------

    def txt2vec(self, text: str, vec_type: type = list) -> list[int]:
        """Return the token ids of one text, without special tokens around it; line ends become the newline token."""
        return self.ready.encode([text])[0]

    def vec2txt(self, vector: Iterable[int], delimiter: str = " ") -> str:
        """Return the text of token ids, without special tokens."""
        return self.ready.decode(vector)

    def is_prebuilt(self) -> bool:
        """Whether nothing is left to learn from the task."""
        return self.tokenizer is not None

    def __len__(self) -> int:
        return 0 if self.tokenizer is None else len(self.tokenizer)

    def __contains__(self, token: object) -> bool:
        return self.tokenizer is not None and self.tokenizer.compiled.token_to_id(str(token)) is not None

    def __getitem__(self, key: str | int) -> Any:
        compiled = self.ready.compiled
        return compiled.id_to_token(key) if isinstance(key, int) else compiled.token_to_id(key)

    def __setitem__(self, key: str, value: int) -> None:
        """Add a person token, as TorchAgent does; `value` is a word count and is not used."""
        self.add_additional_special_tokens([key])

    def add_additional_special_tokens(self, additional_special_tokens: list[str]) -> None:
        """Add tokens of the user (`--special-tok-lst`, `--person-tokens`), which are found in text and never split."""
        if self.tokenizer is not None:
            self.tokenizer.add_tokens(additional_special_tokens)

    def keys(self) -> Iterable[str]:
        """Return the vocabulary."""
        return {} if self.tokenizer is None else self.tokenizer.compiled.get_vocab()

    def set_tokenization_mode(self, mode: Any) -> None:
        """Do nothing: training and evaluation tokenise alike."""

    def share(self) -> dict[str, Any]:
        """Return nothing to share: clones use the same dictionary (TorchAgent.share)."""
        return {"class": type(self), "opt": self.opt}

    def shutdown(self) -> None:
        """Do nothing: ParlAI's dictionary would save itself here."""

    # ---- learning a vocabulary (scratch backbones) -----------------------------------------------------------------

    def act(self) -> dict[str, str]:
        """Collect the texts of the example that `build_dict` shows."""
        example: dict[str, Any] = self.observation or {}
        texts = [example.get("text"), *example.get("labels", ()), *example.get("label_candidates", ())]
        self._lines.update(dict.fromkeys(line for text in texts if text for line in text.split("\n")))
        return {"id": self.id}

    def _learn(self) -> None:
        if not self._lines:
            raise InputError(
                f"--backbone {self.opt['backbone']} learns its vocabulary from the task, and the training data of "
                f"--task {self.opt.get('task')} holds no text; give a task with text, or a pretrained backbone."
            )
        lines, self._lines = self._lines, {}
        self._take(learn_word_pieces(lines))

    # ---- files -----------------------------------------------------------------------------------------------------

    def save(self, filename: str | None = None, append: bool = False, sort: bool = True) -> None:
        """Write the dictionary file, --dict-file if none is named, atomically."""
        if self.tokenizer is None:
            self._learn()
        made_for = {name: self.opt.get(name) for name in ("backbone", "vocabulary", "task")}
        DictionaryFile(self.ready, self.backbone_config, made_for).write(filename or self.opt["dict_file"])
        self._hold_model()  # its folder may have been missing

    def load(self, filename: str) -> None:
        """Read what `save` wrote, or ParlAI's own `bpe` dictionary."""
        model = filename.removesuffix(".dict")
        parlai_options.check(model)  # checked before its dictionary, which may need an option that we do not support
        if bpe_dictionary.is_dictionary(filename):
            options = parlai_options.read(model) or parlai_options.read(filename)
            self._take(RankingTokenizer.of_content(bpe_dictionary.read(filename, options)))
            return
        held = DictionaryFile.read(filename)
        self.backbone_config = held.backbone_config
        self._take(held.tokenizer)
        self._check_fresh(filename, held.made_for)

    def _check_fresh(self, filename: str, made_for: dict[str, Any]) -> None:
        """Refuse, before training, the dictionary that a run with another backbone or task has left at `M.dict`."""
        model = self.opt.get("model_file")
        if filename != f"{model}.dict" or os.path.exists(model) or self.opt.get("init_model"):
            return
        learnt = made_for["backbone"].startswith(SCRATCH) and not made_for["vocabulary"]
        for key in ("backbone", "vocabulary", "task") if learnt else ("backbone", "vocabulary"):
            if made_for[key] != self.opt.get(key):
                raise InputError(
                    f"{filename} was made for --{key} {made_for[key]}, not {self.opt.get(key)}. Delete it, or give "
                    f"another --model-file."
                )
