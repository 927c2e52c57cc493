"""Text to token ids: a Hugging Face tokenizer as a ParlAI dictionary, with the paper's special tokens and truncation.

A trained model's `M.dict` is one JSON file that holds the tokenizer, the special tokens and the backbone's
configuration. With it, `M` and `M.opt` a model is complete: neither hub nor backbone folder is asked again. ParlAI's
own dictionaries are read, too (dictionary.py).
"""

import copy
import json
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from parlai.core.build_data import modelzoo_path
from parlai.core.dict import DictionaryAgent
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from tokenizers import AddedToken, Tokenizer, trainers

from polyagents.errors import InputError
from polyagents.files.hashing import utf8
from polyagents.parlai_files import bpe_dictionary, model_options, model_weights
from polyagents.text.pretrained import load_tokenizer
from polyagents.text.special_tokens import SpecialTokens
from polyagents.text.word_pieces import bert_tokenizer

FORMAT = "polyagents-dictionary-1"


SCRATCH = "scratch:"


# Lines whose ids are remembered, some 100 MB of them: an epoch meets a label as label, as negative and in the next
# turn's history. Not those of calls with more texts, which come from files, each once.
REMEMBERED_LINES = 500_000


REMEMBERED_CALLS = 1_000


SCRATCH_VOCABULARY = 30_522  # BERT's size; a small task has fewer word pieces to offer


class TextDictionary(DictionaryAgent):
    """A Hugging Face fast tokenizer where ParlAI expects a dictionary.

    It comes from `--dict-file` where that exists (a trained model's `M.dict`), else from `--backbone`; for a
    `scratch:` backbone it is that of `--vocabulary`, or learnt from the task by ParlAI's own dictionary building.
    """

    @classmethod
    def add_cmdline_args(cls, parser: ParlaiParser, partial_opt: Opt | None = None) -> ParlaiParser:
        """Only the flags that are read; ParlAI's word dictionary has twenty more."""
        group = parser.add_argument_group("Dictionary Arguments")
        group.add_argument("-df", "--dict-file", help="path to the dictionary file, by default MODEL_FILE.dict")
        return parser

    def __init__(self, opt: Opt, shared: dict[str, Any] | None = None):
        # DictionaryAgent.__init__ would read its own file format and build a word table.
        self.opt = copy.deepcopy(opt)
        self.id = "TextDictionary"
        self.observation = None
        self.backbone_config: dict[str, Any] | None = None
        self.parlai: dict[str, Any] | None = None  # of ParlAI's own dictionary: how many tokens, their counts
        self._known: dict[str, array[int]] = {}
        self._lines: dict[str, None] = {}  # what a scratch vocabulary is learnt from; a dict keeps the order
        file, backbone = opt.get("dict_file"), opt["backbone"]
        if opt.get("vocabulary") and not backbone.startswith(SCRATCH):
            raise InputError(
                f"--backbone {backbone} has a vocabulary of its own; leave --vocabulary away, or give --backbone "
                f"scratch:tiny|mini|base."
            )
        first = modelzoo_path(opt.get("datapath"), opt.get("init_model"))
        if file and os.path.exists(file):
            self.load(file)
        elif first and os.path.exists(f"{first}.dict"):  # its weights know no other vocabulary
            self.load(f"{first}.dict")
        elif backbone.startswith(SCRATCH) and opt.get("vocabulary"):
            self._adopt(*load_tokenizer(opt["vocabulary"], "--vocabulary"))
        elif backbone.startswith(SCRATCH):
            self.tokenizer: Tokenizer | None = None
        elif model := model_weights.backbone_file(backbone, opt.get("datapath")):
            self.load(f"{model}.dict")
        else:
            self._adopt(*load_tokenizer(backbone))

    # ---- ids -------------------------------------------------------------------------------------------------------

    def txt2vec(self, text: str, vec_type: type = list) -> list[int]:
        """Token ids of one text, without special tokens around it; line ends become the newline token."""
        return self.encode([text])[0]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of many texts in one call of the compiled tokenizer."""
        if self.tokenizer is None:
            raise InputError(
                f"--backbone {self.opt['backbone']} has no vocabulary before training: train_model learns it from the "
                f"task. Train first, or give --model-file of a trained model."
            )
        split = [text.split("\n") for text in texts]
        if len(texts) > REMEMBERED_CALLS:
            known = self._encode_lines([line for lines in split for line in lines])
        else:
            if len(self._known) > REMEMBERED_LINES:
                self._known.clear()
            self._known |= self._encode_lines([line for lines in split for line in lines if line not in self._known])
            known = self._known
        return [self._join([known[line] for line in lines]) for lines in split]

    def _encode_lines(self, lines: Iterable[str]) -> dict[str, "array[int]"]:
        """Each line once."""
        distinct = list(dict.fromkeys(lines))
        if not distinct:
            return {}
        assert self.tokenizer is not None
        texts = [utf8(line).decode() for line in distinct]
        encoded = (found.ids for found in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        if self.parlai is not None:
            size, unknown = len(self), self[self.unk_token]
            encoded = (
                ids if max(ids, default=0) < size else [token if token < size else unknown for token in ids]
                for ids in encoded
            )
        return {line: array("i", ids) for line, ids in zip(distinct, encoded, strict=True)}

    def _join(self, lines: list["array[int]"]) -> list[int]:
        ids = lines[0].tolist()
        for line in lines[1:]:
            ids += self.newline_ids
            ids += line
        return ids

    def context(self, ids: Sequence[int], limit: int | None) -> list[int]:
        """[S] context [S], at most `limit` tokens in all; what is nearest to the reply stays (paper v1 5.1)."""
        kept = ids if limit is None else ids[max(len(ids) - (limit - 2), 0) :]
        return [self.start_id, *kept, self.end_id]

    def candidate(self, ids: Sequence[int], limit: int | None) -> list[int]:
        """[S] candidate [S], at most `limit` tokens in all; its beginning stays.

        ParlAI cuts the last [S] off with the rest, and its weights expect that.
        """
        if limit is None or len(ids) + 2 <= limit:
            return [self.start_id, *ids, self.end_id]
        return [self.start_id, *ids[: limit - 1]] if self.parlai else [self.start_id, *ids[: limit - 2], self.end_id]

    def vec2txt(self, vector: Iterable[int], delimiter: str = " ") -> str:
        """Token ids back to text, special tokens left out."""
        assert self.tokenizer is not None
        return self.tokenizer.decode([int(token) for token in vector])

    # ---- what TorchAgent asks of a dictionary ----------------------------------------------------------------------

    def is_prebuilt(self) -> bool:
        """Whether nothing is left to learn from the task."""
        return self.tokenizer is not None

    def __len__(self) -> int:
        if self.parlai is not None:
            return int(self.parlai["tokens"])
        return 0 if self.tokenizer is None else self.tokenizer.get_vocab_size()

    def __contains__(self, token: object) -> bool:
        return self.tokenizer is not None and self.tokenizer.token_to_id(str(token)) is not None

    def __getitem__(self, key: str | int) -> Any:
        assert self.tokenizer is not None
        return self.tokenizer.id_to_token(key) if isinstance(key, int) else self.tokenizer.token_to_id(key)

    def __setitem__(self, key: str, value: int) -> None:
        """How TorchAgent adds its person tokens; `value` is a word count, of no use here."""
        self.add_additional_special_tokens([key])

    def add_additional_special_tokens(self, additional_special_tokens: list[str]) -> None:
        """Tokens of the user (`--special-tok-lst`, `--person-tokens`), found in text and never split."""
        if self.parlai is not None:
            raise InputError(
                f"The model's dictionary is ParlAI's and takes no further tokens such as "
                f"{additional_special_tokens[0]}; leave --special-tok-lst and --person-tokens away."
            )
        if self.tokenizer is not None:
            self._known.clear()
            self.tokenizer.add_tokens([AddedToken(token, normalized=False) for token in additional_special_tokens])

    def keys(self) -> Iterable[str]:
        """The vocabulary."""
        return {} if self.tokenizer is None else self.tokenizer.get_vocab()

    def set_tokenization_mode(self, mode: Any) -> None:
        """Training and evaluation tokenise alike."""

    def share(self) -> dict[str, Any]:
        """Clones hold this very dictionary (TorchAgent.share); nothing else is to share."""
        return {"class": type(self), "opt": self.opt}

    def shutdown(self) -> None:
        """Nothing to save: ParlAI's dictionary would write itself here."""

    # ---- learning a vocabulary (scratch backbones) -----------------------------------------------------------------

    def act(self) -> dict[str, str]:
        """Remember the texts of the example that `build_dict` shows."""
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
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[NEWLINE]"]
        trained = bert_tokenizer(None)
        alphabet = sorted(set().union(*map(trained.normalizer.normalize_str, self._lines)) - {" "})
        # The trainer numbers the pieces ##a, ##b, ... in the order of a hash table, another one each time, and breaks
        # ties between equally frequent pairs by these numbers; given as special tokens, they are numbered in order.
        fixed = [*special, *(f"##{letter}" for letter in alphabet)]
        trainer = trainers.WordPieceTrainer(
            vocab_size=SCRATCH_VOCABULARY,
            min_frequency=2,
            special_tokens=fixed,
            initial_alphabet=alphabet,
            show_progress=False,
        )
        trained.train_from_iterator(self._lines, trainer)
        tokenizer = bert_tokenizer(trained.get_vocab(with_added_tokens=False))
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        self._lines = {}
        self._adopt(tokenizer, SpecialTokens(pad="[PAD]", start="[CLS]", end="[SEP]", newline="[NEWLINE]"))

    # ---- files -----------------------------------------------------------------------------------------------------

    def _adopt(self, tokenizer: Tokenizer, special: SpecialTokens, parlai: dict[str, Any] | None = None) -> None:
        tokenizer.no_truncation()  # a folder's tokenizer.json may cut at 128 tokens (MiniLM); lengths are ours to set
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "[SEP]" typed by a user is text
        self.tokenizer, self.special, self.parlai = tokenizer, special, parlai
        self._known.clear()
        self.null_token, self.start_token, self.end_token = special.pad, special.start, special.end
        self.unk_token = tokenizer.model.unk_token if parlai else ""
        self.pad_id, self.start_id, self.end_id = (self[token] for token in (special.pad, special.start, special.end))
        # A word to ParlAI: several pieces where its dictionary was learnt from single lines.
        self.newline_ids = list(self._encode_lines(["\n"])["\n"]) if parlai else [self[special.newline]]

    def save(self, filename: str | None = None, append: bool = False, sort: bool = True) -> None:
        """Write the dictionary file, whole or not at all."""
        if self.tokenizer is None:
            self._learn()
        assert self.tokenizer is not None
        filename = filename or self.opt["dict_file"]
        content = {
            "format": FORMAT,
            "backbone": self.opt["backbone"],
            "vocabulary": self.opt.get("vocabulary"),
            "task": self.opt.get("task"),
            **self.content(),
        }
        os.makedirs(os.path.dirname(filename) or ".", exist_ok=True)
        with open(f"{filename}.tmp", "w", encoding="utf-8") as out:
            json.dump(content, out, ensure_ascii=False)
        os.replace(f"{filename}.tmp", filename)

    def content(self) -> dict[str, Any]:
        """What a dictionary file holds of the tokenizer."""
        assert self.tokenizer is not None
        return {
            "special_tokens": asdict(self.special),
            "backbone_config": self.backbone_config,
            "tokenizer": json.loads(self.tokenizer.to_str()),
            "parlai": self.parlai,
        }

    def load(self, filename: str) -> None:
        """Read what `save` wrote, or ParlAI's own `bpe` dictionary."""
        model = filename.removesuffix(".dict")
        model_options.check(model)  # before its dictionary, which may be one of the options that we do not have
        if bpe_dictionary.is_dictionary(filename):
            options = model_options.read(model) or model_options.read(filename)
            self._take(bpe_dictionary.read(filename, options))
            return
        try:
            with open(filename, encoding="utf-8") as file:
                content = json.load(file)
            if content["format"] != FORMAT:
                raise KeyError("format")
            self._take(content)
        except Exception as error:  # no JSON, or not ours; the tokenizers library raises bare Exceptions
            raise InputError(
                f"{filename} is no dictionary of polyagents (a whole {FORMAT} file). Delete it to build it anew, or "
                f"give the right one with --dict-file."
            ) from error
        self._check_fresh(filename, content)

    def _take(self, content: dict[str, Any]) -> None:
        self.backbone_config = content["backbone_config"]
        tokenizer = Tokenizer.from_str(json.dumps(content["tokenizer"]))
        self._adopt(tokenizer, SpecialTokens(**content["special_tokens"]), content.get("parlai"))

    def _check_fresh(self, filename: str, content: dict[str, Any]) -> None:
        """Before training, refuse the dictionary that a run with another backbone or task has left at `M.dict`."""
        model = self.opt.get("model_file")
        if filename != f"{model}.dict" or os.path.exists(model) or self.opt.get("init_model"):
            return
        learnt = content["backbone"].startswith(SCRATCH) and not content.get("vocabulary")
        for key in ("backbone", "vocabulary", "task") if learnt else ("backbone", "vocabulary"):
            if content.get(key) != self.opt.get(key):
                raise InputError(
                    f"{filename} was made for --{key} {content.get(key)}, not {self.opt.get(key)}. Delete it, or give "
                    f"another --model-file."
                )
