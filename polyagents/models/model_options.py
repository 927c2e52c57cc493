"""The table of a model's options: of its encoder, its texts, and its architecture."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyagents.arguments import AUTO, PRECISIONS, Whole, boolean, positive_or_auto, probability, token_limit
from polyagents.errors import InputError
from polyagents.models.formulas import CONTEXT_VECTORS, REDUCTIONS
from polyagents.options import Options, Role, option

TRAIN_LAYERS = ("all", "all_but_embeddings", "top4", "top")
SIMILARITIES, CLASSIFIERS = ("dot", "cosine"), ("tanh", "gelu", "relu")  # of --joint-head, besides linear
CODES_INITS = ("normal", "uniform", "unit")
SCRATCH = "scratch:"  # the prefix of backbones that start from random weights


@dataclass(frozen=True)
class EncoderOptions(Options, title="Encoder (polyagents)"):
    """The options of one encoder: its backbone, trained layers, dropout and precision."""

    backbone: str = option(
        "bert-base-uncased",
        "the pretrained encoder: a Hugging Face hub name, a folder, or scratch:tiny|mini|base (BERT's sizes, random "
        "weights, vocabulary learnt from the task)",
        role=Role.WEIGHTS | Role.TRAINING,
    )
    train_layers: str | None = option(
        None,
        "which layers learn (paper Table 3). Default: all_but_embeddings, the paper's best for BERT; all for a scratch "
        "backbone, and in pre-training",
        choices=TRAIN_LAYERS,
        role=Role.TRAINING,
    )
    precision: str = option(
        "auto",
        "arithmetic of the encoder (autocast); weights, scores, softmax and loss stay in fp32. auto: bf16 on a GPU "
        "that supports it, and in training on a CPU that was measured to be faster in it; otherwise fp32",
        choices=PRECISIONS,
    )
    dropout: float | None = option(
        None,
        "overrides the backbone's own dropout everywhere; 0 nearly halves the time of a CPU step. Default: the "
        "backbone's own; from the second pass over the examples if the learning rate falls to the end of the run",
        probability,
    )

    @property
    def trained_layers(self) -> str:
        """The layers that learn; without the flag, the backbone decides."""
        scratch = "all" if self.backbone.startswith(SCRATCH) else "all_but_embeddings"
        return self.train_layers or scratch


@dataclass(frozen=True)
class TextOptions(Options, title="Text (polyagents)"):
    """How texts are read, and their maximal lengths (v1 5.1) in tokens, special tokens counted; -1 means no limit."""

    text_truncate: int = option(360, "context length in tokens; its end is kept", token_limit)
    label_truncate: int = option(72, "candidate length in tokens; its beginning is kept", token_limit)
    plain_texts: bool = option(
        False,
        "read a text as Hugging Face's libraries do: a line end is what the tokenizer makes of it (BERT's: white "
        "space), and a context keeps its beginning, too. The models of polyagents init_model do, and what starts from "
        "them",
        boolean,
        role=Role.VECTORS,
    )
    vocabulary: str | None = option(
        None,
        "of a scratch backbone: folder or hub name of a Hugging Face tokenizer, such as polyagents build_vocabulary "
        "writes; by default the vocabulary is learnt from the task",
        role=Role.TRAINING,
    )


@dataclass(frozen=True)
class RankingOptions(Options, title="Ranking (polyagents)"):
    """The options that every architecture has."""

    reduction_type: str = option(
        "first",
        "how the outputs become one vector: the special token's, the mean of all, or of the first m "
        "(--poly-n-codes); paper 4.2. A scratch backbone takes the mean by default",
        choices=REDUCTIONS,
        role=Role.VECTORS | Role.CARD,
    )
    poly_n_codes: int = option(
        64,
        "m: the number of context vectors of a poly-encoder, and of outputs that --reduction-type first_m averages",
        Whole(1, 65_536),
        role=Role.WEIGHTS | Role.CARD,
    )
    output_scaling: float | str = option(
        1.0,
        "multiplies the encoder's outputs; auto: a backbone's outputs get the deviation of BERT's (paper 5.3)",
        positive_or_auto,
        role=Role.VECTORS,
    )
    context_prompt: str = option(
        "",
        "text before every context, such as an instruction that the backbone was trained with; it is never truncated",
        role=Role.SCORES,
    )
    candidate_prompt: str = option("", "text before every candidate; it is never truncated", role=Role.VECTORS)
    lora_rank: int | None = option(
        None,
        "train low-rank adapters of this rank, and freeze the backbone's weights (LoRA; polyagents[lora]); the model "
        "file contains only the adapters, and needs the --backbone whenever it is loaded",
        Whole(1, 65_536),
        role=Role.WEIGHTS | Role.TRAINING,
    )
    backbone_bits: str | None = option(
        None,
        "keep the backbone's frozen weights in 8 or 4 bits (QLoRA): with --lora-rank; polyagents[lora]",
        choices=("8", "4"),
        role=Role.SCORES | Role.TRAINING,
    )

    @property
    def prompts(self) -> tuple[str, str]:
        """The text before every context, and before every candidate."""
        return self.context_prompt, self.candidate_prompt

    @property
    def scale(self) -> float:
        """The factor for the outputs; 1 for `auto`, which is measured once there is an encoder."""
        return 1.0 if self.output_scaling == AUTO else float(self.output_scaling)


def is_similarity(head: str) -> bool:
    """Tell whether a `--joint-head` scores the two texts as a bi-encoder does, each read by itself."""
    return head.removesuffix("+late") in SIMILARITIES


@dataclass(frozen=True)
class JointOptions(RankingOptions, title="Uni- and cross-encoder (polyagents)"):
    """The options of uni- and cross-encoder, which score what was read together."""

    joint_head: str = option(
        "linear",
        "linear: a linear layer (the papers); dot, cosine: a bi-encoder's score of both texts, plus a linear layer "
        "that starts at 0; dot+late, cosine+late: plus how well each token of a candidate is matched by one of the "
        "context; tanh, gelu, relu: a layer with this activation before the linear one, as in the classifiers of BERT, "
        "DeBERTa and DistilBERT. By default, with an --init-model that has two encoders, its similarity+late",
        choices=("linear", *SIMILARITIES, *(f"{one}+late" for one in SIMILARITIES), *CLASSIFIERS),
        role=Role.WEIGHTS | Role.CARD,
    )
    share_encoders: bool = option(
        True,
        "one encoder for all texts; false: for the similarity of --joint-head, candidates are read by one of their "
        "own. By default, as in the --init-model",
        boolean,
        role=Role.WEIGHTS | Role.TRAINING | Role.CARD,
    )


@dataclass(frozen=True)
class UniOptions(JointOptions):
    """The options of a uni-encoder, whose paper takes the mean of a candidate's outputs."""

    reduction_type: str = option(
        "mean",
        "how a candidate's outputs become one vector: the mean of all, the special token's, or the mean of the first m "
        "(--poly-n-codes)",
        choices=REDUCTIONS,
        role=Role.VECTORS | Role.CARD,
    )


@dataclass(frozen=True)
class TowerOptions(RankingOptions, title="Two encoders (polyagents)"):
    """The options of bi- and poly-encoder, which have two encoders and a similarity."""

    share_encoders: bool = option(
        False,
        "one encoder for context and candidate instead of two that start from the same weights",
        boolean,
        role=Role.WEIGHTS | Role.TRAINING | Role.CARD,
    )
    similarity: str = option(
        "dot",
        "dot product (the paper), or cosine: scores between -1 and 1. A backbone of sentence-transformers says its own",
        choices=("dot", "cosine"),
        role=Role.VECTORS | Role.CARD,
    )
    include_prompt: bool = option(
        True,
        "false: a text's vector omits the outputs of its prompt and of the [S] before it, as in some models of "
        "sentence-transformers",
        boolean,
        role=Role.VECTORS,
    )


@dataclass(frozen=True)
class PolyOptions(TowerOptions, title="Poly-encoder (polyagents)"):
    """The options of a poly-encoder."""

    polyencoder_type: str = option(
        "codes",
        "the m context vectors: learnt codes, or outputs of the encoder (paper appendix C, Table 8)",
        choices=CONTEXT_VECTORS,
        role=Role.WEIGHTS | Role.CARD,
    )
    poly_attention_type: str = option(
        "basic",
        "attention over the context vectors: softmax of the dot products, or of the products divided by sqrt(D)",
        choices=("basic", "sqrt"),
        role=Role.SCORES,
    )
    codes_init: str = option(
        "normal",
        "initial values of learnt codes: normal, N(0, 0.02), so that attention is even and the poly-encoder begins as "
        "the mean of all outputs; uniform, U(0, 1), as in the paper's code; unit, N(1/sqrt(D), 1), as in "
        "chijames/Poly-Encoder",
        choices=CODES_INITS,
        role=Role.TRAINING,
    )


def history_flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ParlAI's flags, with values, that change the contexts of its commands but not those of `Ranker`.

    A run of training refuses them. A model of an earlier version, or of ParlAI's own agents, may have them.
    """
    usual = {"person_tokens": False, "delimiter": "\n", "history_reversed": False, "history_add_global_end_token": None}
    found = {f"--{name.replace('_', '-')}": (options.get(name, value), value) for name, value in usual.items()}
    return {flag: given for flag, (given, value) in found.items() if (given or None) != (value or None)}


def of_finished_model(options: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the options of a finished model without removed ones.

    `codes_init` and `codes_penalty` concern training only. The others decide what the model computes.

    Raises:
        InputError: it computes what only an earlier version can.
    """
    for name, value in (("codes_mean", True), ("poly_attention_type", "learnt")):
        if options.get(name) == value:
            raise InputError(
                f"{file} was trained with --{name.replace('_', '-')} {str(value).lower()}, which polyagents no longer "
                f"has (the last to read it was a development version of 0.2.0); train it again without that flag."
            )
    removed = ["codes_mean", "codes_penalty"] + ["codes_init"] * (options.get("codes_init") not in CODES_INITS)
    return {name: value for name, value in options.items() if name not in removed}
