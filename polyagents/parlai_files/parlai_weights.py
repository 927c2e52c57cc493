"""Converts ParlAI's own rankers (`transformer/biencoder`, `polyencoder`, `crossencoder`) to ours, and back.

ParlAI's encoder with `--variant xlm` computes what `BertModel` does, under other names: one table translates them in
both directions. The weights are not changed, bit for bit.
"""

import json
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write, write_text
from polyagents.parlai_files import bpe_dictionary, parlai_options

# ---- names of weights --------------------------------------------------------------------------------------------

ENCODER = {  # ParlAI's TransformerEncoder -> BertModel
    "embeddings": "embeddings.word_embeddings",
    "position_embeddings": "embeddings.position_embeddings",
    "segment_embeddings": "embeddings.token_type_embeddings",
    "norm_embeddings": "embeddings.LayerNorm",
}
LAYER = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "norm2": "output.LayerNorm",
}
ENCODERS = {  # by architecture; the encoder of contexts is first
    "BiEncoder": {"context_encoder": "context_encoder.backbone", "cand_encoder": "candidate_encoder.backbone"},
    "PolyEncoder": {"encoder_ctxt": "context_encoder.backbone", "encoder_cand": "candidate_encoder.backbone"},
    "CrossEncoder": {"encoder": "encoder.backbone"},
}
HEADS = {"BiEncoder": {}, "PolyEncoder": {"codes": "codes"}, "CrossEncoder": {"linear_layer": "linear"}}
# Weights that ParlAI's bi-encoder stores twice: a module that is part of two others has two names.
COPIES = {
    "embeddings": "context_encoder.embeddings",
    "cand_embeddings": "cand_encoder.embeddings",  # without --share-word-embeddings
    "memory_transformer": "context_encoder",
}
# numpy's numbers, which ParlAI's schedulers leave in a file; everything else that is not a tensor or plain value is
# refused, since it could run code.
SCALAR = np.float64(0).__reduce__()[0]
NUMBERS: list[Any] = [(SCALAR, "numpy.core.multiarray.scalar"), (SCALAR, "numpy._core.multiarray.scalar"), np.dtype]
NUMBERS += [type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64)]


@dataclass(frozen=True)
class ParlaiModel:
    """A ParlAI model file and its options, both with ParlAI's names."""

    architecture: str
    options: dict[str, Any]
    weights: dict[Any, Any]  # str and Tensor, once `wrong` has looked at them

    @classmethod
    def read(cls, file: str) -> "ParlaiModel":
        """Read `file` and `file.opt`; the weights stay on disk until they are used, if the file's format allows it.

        Raises:
            InputError: a file is damaged, contains code, or has an option that our agents lack.
        """
        parlai_options.check(file)
        options = parlai_options.read(file)
        architecture = parlai_options.architecture_of_agent(options.get("model"))
        assert architecture is not None, "is_parlais was asked before"
        mapped = zipfile.is_zipfile(file)  # written by torch 1.6 or later
        try:
            with torch.serialization.safe_globals(NUMBERS):
                loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError as error:
            raise InputError(
                f"{file} is damaged, or contains more than tensors and plain values, which could run code when it is "
                f"read; give another model file."
            ) from error
        except Exception as error:  # a file that ends too early raises half a dozen kinds
            raise InputError(f"{file} is damaged, or is not a model file of ParlAI; give another one.") from error
        weights = loaded.get("model") if isinstance(loaded, dict) else None
        if not isinstance(weights, dict):
            raise InputError(f"{file} is damaged: it holds no weights by name; give another model file.")
        model = cls(architecture, options, weights)
        if wrong := model.wrong():
            raise InputError(
                f"{file} does not hold the weights of {options['model']}, which {file}.opt says that it is ({wrong}); "
                f"give another model file."
            )
        return model

    def wrong(self) -> str | None:
        """Return the fault of the weights' types, or of the sizes that `config` reads; None without a fault.

        All other shapes are compared when the weights are loaded.
        """
        for name, weight in self.weights.items():
            if not isinstance(name, str):
                return f"a name is {name!r}"
            if not isinstance(weight, Tensor) or weight.layout != torch.strided or weight.is_nested:
                return f"{name} is not a tensor of numbers"
            if not weight.is_floating_point():
                return f"{name} is {str(weight.dtype)[6:]}"
        layers = layers_of(self.weights, f"{self.encoder}.layers.")
        for part in ("embeddings", "position_embeddings", "layers.0.ffn.lin1"):
            size = self.weights.get(f"{self.encoder}.{part}.weight", torch.empty(0)).shape
            if len(size) != 2 or 0 in size:
                return f"{self.encoder}.{part}.weight is missing, or has shape {tuple(size)}"
        width, inner = (self.weights[f"{self.encoder}.{part}.weight"] for part in ("embeddings", "layers.0.ffn.lin1"))
        found = {"embedding_size": width.size(1), "ffn_size": inner.size(0), "n_layers": layers}
        for name, number in found.items():
            if self.options.get(name, number) != number:
                return f"{name} is {self.options[name]} there, and {number} here"
        if width.size(1) % self.options.get("n_heads", 2):
            return f"n_heads does not divide a width of {width.size(1)}"
        return None

    @property
    def encoder(self) -> str:
        """ParlAI's name of the encoder that reads contexts."""
        return next(iter(ENCODERS[self.architecture]))

    def config(self) -> "transformers.BertConfig":
        """Build the configuration of an encoder from the weights and the options."""
        words, positions = (
            self.weights[f"{self.encoder}.{name}.weight"] for name in ("embeddings", "position_embeddings")
        )
        segments = self.weights.get(f"{self.encoder}.segment_embeddings.weight")
        return transformers.BertConfig(
            vocab_size=words.size(0),
            hidden_size=words.size(1),
            num_hidden_layers=layers_of(self.weights, f"{self.encoder}.layers."),
            num_attention_heads=self.options.get("n_heads", 2),
            intermediate_size=self.weights[f"{self.encoder}.layers.0.ffn.lin1.weight"].size(0),
            hidden_act=self.options.get("activation", "relu"),
            hidden_dropout_prob=self.options.get("dropout", 0.0),
            attention_probs_dropout_prob=self.options.get("attention_dropout", 0.0),
            max_position_embeddings=positions.size(0),
            type_vocab_size=1 if segments is None else segments.size(0),
            layer_norm_eps=parlai_options.LAYER_NORM_EPS,
            pad_token_id=0,
        )

    def state(self) -> dict[str, Tensor]:
        """Return the weights under our names, in fp32; refuse those that an encoder of these options lacks."""
        names = module_names(self.architecture, layers_of(self.weights, f"{self.encoder}.layers."))
        copies = COPIES if self.architecture == "BiEncoder" else {}
        state = {}
        for name, weight in self.weights.items():
            module, _, leaf = name.rpartition(".")
            if not any(module == copy or module.startswith(f"{copy}.") for copy in copies):
                if name not in names and module not in names:
                    raise InputError(f"The ParlAI model has weights {name}, which its options do not account for.")
                state[names[name] if name in names else f"{names[module]}.{leaf}"] = weight.float()
        for encoder in ENCODERS[self.architecture].values():  # BertModel has always one segment
            place, like = (f"{encoder}.embeddings.{name}_embeddings.weight" for name in ("token_type", "word"))
            if place not in state:
                state[place] = torch.zeros_like(state[like][:1])
        return state

    def backbone(self) -> dict[str, Tensor]:
        """Return the weights of the encoder that reads contexts, under the names of `BertModel`."""
        prefix = f"{ENCODERS[self.architecture][self.encoder]}."
        return {name.removeprefix(prefix): w for name, w in self.state().items() if name.startswith(prefix)}

    @classmethod
    def of(cls, architecture: str, state: dict[str, Tensor], options: dict[str, Any]) -> "ParlaiModel":
        """Convert a model of ours, such as "BiEncoder" on a `BertModel`, to ParlAI's names.

        Args:
            options: ParlAI's; that the encoders share their word embeddings is kept only if it is still so.
        """
        context = next(iter(ENCODERS[architecture].values()))
        names = {
            ours: theirs
            for theirs, ours in module_names(architecture, layers_of(state, f"{context}.encoder.layer.")).items()
        }
        weights = {}
        for name, weight in state.items():
            module, _, leaf = name.rpartition(".")
            if not (module.endswith("token_type_embeddings") and len(weight) == 1 and not weight.any()):
                weights[names[name] if name in names else f"{names[module]}.{leaf}"] = weight
        encoders = list(ENCODERS[architecture])
        words = [weights[f"{encoder}.embeddings.weight"] for encoder in encoders]
        shared = bool(options.get("share_word_embeddings")) and all(torch.equal(words[0], other) for other in words)
        segments = weights.get(f"{encoders[0]}.segment_embeddings.weight")
        options = options | {"share_word_embeddings": shared, "n_segments": 0 if segments is None else len(segments)}
        copies = dict(COPIES) if architecture == "BiEncoder" else {}
        if shared:
            copies.pop("cand_embeddings", None)
        for copy, original in copies.items():
            given = [name for name in weights if name.startswith(f"{original}.")]
            weights |= {copy + name.removeprefix(original): weights[name] for name in given}
        return cls(architecture, options, weights)

    def write(self, file: str, dictionary: dict[str, Any], flags: Mapping[str, Any]) -> None:
        """Write `file`, and before it `file.opt`, `file.dict` and `file.dict.codecs`.

        Args:
            flags: all flags of ParlAI's agent with their defaults, since its loader adds none.

        Raises:
            InputError: the dictionary is not one of ParlAI's; nothing is written.
        """
        if dictionary["parlai"] is None:
            raise InputError(
                "ParlAI's agents cannot run this model: its tokenizer is not ParlAI's; only a model that started from "
                "one of ParlAI's (--init-model, --backbone zoo:reddit) can be converted back."
            )
        tokens, rows = dictionary["parlai"]["tokens"], self.config().vocab_size
        options = self.options | bpe_dictionary.write(dictionary, f"{file}.dict") | {"force_fp16_tokens": rows > tokens}
        write_text(f"{file}.opt", json.dumps({**flags, **options}, indent=4) + "\n")
        with atomic_write(file) as temporary:
            torch.save({"model": self.weights}, temporary)


def module_names(architecture: str, layers: int) -> dict[str, str]:
    """Map ParlAI's names of modules (and of the codes), with that many layers in an encoder, to ours."""
    encoder = ENCODER | {
        f"layers.{i}.{theirs}": f"encoder.layer.{i}.{ours}" for i in range(layers) for theirs, ours in LAYER.items()
    }
    names = {
        f"{their_encoder}.{theirs}": f"{our_encoder}.{ours}"
        for their_encoder, our_encoder in ENCODERS[architecture].items()
        for theirs, ours in encoder.items()
    }
    return names | HEADS[architecture]


def layers_of(weights: dict[str, Tensor], prefix: str) -> int:
    """Count the layers of which the weights' names have a prefix and a number."""
    return len({name.removeprefix(prefix).split(".")[0] for name in weights if name.startswith(prefix)})
