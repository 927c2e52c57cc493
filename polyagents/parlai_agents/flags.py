"""The flags of the agents: declared and checked once, read into frozen dataclasses that travel from here on."""

from typing import Any

from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser

from polyagents.arguments import AUTO, positive, positive_int, positive_ints, positive_or_auto, probability, token_limit
from polyagents.errors import InputError
from polyagents.models.options import (
    CODES_INITS,
    PRECISIONS,
    TRAIN_LAYERS,
    BackboneOptions,
    PolyOptions,
    ReductionOptions,
    TowerOptions,
)
from polyagents.models.reduction import CONTEXT_VECTORS, REDUCTIONS
from polyagents.parlai_agents.dictionary import SCRATCH

DISTILLATION_LOSSES = ("kl", "margin_mse")


PRETRAIN_TASKS = ("next_utterance", "next_sentence")


def add_backbone_flags(parser: ParlaiParser) -> None:
    """The flags of all agents."""
    group = parser.add_argument_group("Encoder (polyagents)")
    group.add_argument(
        "--backbone",
        default="bert-base-uncased",
        help="the pretrained encoder: a Hugging Face hub name, a folder, or scratch:tiny|mini|base (BERT's sizes, "
        "random weights, vocabulary learnt from the task)",
    )
    group.add_argument(
        "--vocabulary",
        help="of a scratch backbone: folder or hub name of a Hugging Face tokenizer, such as polyagents "
        "build_vocabulary writes; by default the vocabulary is learnt from the task",
    )
    group.add_argument(
        "--train-layers",
        choices=TRAIN_LAYERS,
        default=None,
        help="which layers learn (paper Table 3). Default: all_but_embeddings, the paper's best for BERT; all for a "
        "scratch backbone, and in pre-training",
    )
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="fp32",
        help="arithmetic of the encoder (autocast); weights, scores, softmax and loss stay in fp32",
    )
    group.add_argument(
        "--dropout",
        type=probability,
        default=None,
        help="overrides the backbone's own dropout everywhere; 0 nearly halves the time of a CPU step",
    )
    # TorchAgent's flags with the paper's lengths (v1 5.1), in tokens, the special tokens counted.
    group.add_argument(
        "--text-truncate", type=token_limit, default=360, help="context length in tokens; its end is kept"
    )
    group.add_argument(
        "--label-truncate", type=token_limit, default=72, help="candidate length in tokens; its beginning is kept"
    )


def add_ranking_flags(parser: ParlaiParser) -> None:
    """The flags of the three agents that rank."""
    group = parser.add_argument_group("Ranking (polyagents)")
    group.add_argument(
        "--reduction-type",
        choices=REDUCTIONS,
        default="first",
        help="how the outputs become one vector: the special token's, the mean of all, or of the first m "
        "(--poly-n-codes); paper 4.2",
    )
    group.add_argument(
        "--poly-n-codes",
        type=positive_int,
        default=64,
        help="m: the number of context vectors of a poly-encoder, and of outputs that --reduction-type first_m "
        "averages",
    )
    group.add_argument(
        "--output-scaling",
        type=positive_or_auto,
        default=1.0,
        help="multiplies the encoder's outputs; auto: gives those of a backbone the deviation of BERT's (paper 5.3)",
    )
    group.add_argument(
        "--recall-at",
        type=positive_ints,
        default="1,2,5,10,50",
        help="report hits@k for each of these k",
    )


def add_memory_flags(parser: ParlaiParser) -> None:
    """What a training run may hold at once, and how it is computed."""
    group = parser.add_argument_group("Training (polyagents)")
    group.add_argument(
        "--chunk-tokens",
        type=positive_int,
        default=None,
        help="train in the memory of chunks of this many tokens, whatever the batch size, with the same gradients; "
        "rankers pay with one more forward pass (GradCache)",
    )
    group.add_argument(
        "--compile",
        type="bool",
        default=False,
        help="compile the encoders (torch.compile, about a minute) for training on a GPU; on CPUs it does not pay",
    )


def add_training_flags(parser: ParlaiParser) -> None:
    """The flags of a ranker's training."""
    add_memory_flags(parser)
    for action in parser._actions:
        if action.dest == "candidates":
            action.choices = [*(action.choices or ()), "batch+inline"]
            action.help = (
                "negatives in training: batch (the other labels of the batch, of all processes), inline (the "
                "example's own candidates), batch+inline (both), batch-all-cands (labels and candidates of the whole "
                "batch), fixed (--fixed-candidates-path)"
            )


def add_pretraining_flags(parser: ParlaiParser) -> None:
    """The flags of pre-training (paper 4.1)."""
    group = parser.add_argument_group("Pre-training (polyagents)")
    group.add_argument(
        "--pretrain-task",
        choices=PRETRAIN_TASKS,
        default="next_utterance",
        help="what is learnt beside masked words: next_utterance, whether a label answers its context; next_sentence, "
        "the same of running text, a sentence a line, cut in two at random as for BERT",
    )
    group.add_argument(
        "--batch-tokens",
        type=positive_int,
        default=32_000,
        help="tokens of an update, padding counted, of each process; --batchsize is not read",
    )
    group.add_argument("--whole-word-masking", type="bool", default=False, help="hide words with all of their pieces")
    group.add_argument(
        "--activation-checkpointing",
        type="bool",
        default=False,
        help="keep each layer's input only, and compute the rest again in the backward pass: less memory, a third more "
        "work",
    )


def add_tower_flags(parser: ParlaiParser) -> None:
    """The flags of bi- and poly-encoder."""
    group = parser.add_argument_group("Two encoders (polyagents)")
    group.add_argument(
        "--share-encoders",
        type="bool",
        default=False,
        help="one encoder for context and candidate instead of two that start from the same weights",
    )
    group.add_argument(
        "--similarity",
        choices=("dot", "cosine"),
        default="dot",
        help="dot product (the paper), or cosine: scores between -1 and 1",
    )
    group = parser.add_argument_group("Distillation (polyagents)")
    group.add_argument(
        "--teacher-model-file",
        default=None,
        help="a trained cross-encoder, whose scores are learnt beside the labels (training only)",
    )
    group.add_argument(
        "--distillation-loss",
        choices=DISTILLATION_LOSSES,
        default="kl",
        help="kl: towards the teacher's softmax; margin_mse: towards its differences between label and negatives",
    )
    group.add_argument(
        "--teacher-negatives",
        type=positive_int,
        default=8,
        help="the teacher scores the label and so many negatives of each example, those that score highest",
    )


def add_poly_flags(parser: ParlaiParser) -> None:
    """The flags of the poly-encoder."""
    group = parser.add_argument_group("Poly-encoder (polyagents)")
    group.add_argument(
        "--polyencoder-type",
        choices=CONTEXT_VECTORS,
        default="codes",
        help="the m context vectors: learnt codes, or outputs of the encoder (paper appendix C, Table 8)",
    )
    group.add_argument(
        "--poly-attention-type",
        choices=("basic", "sqrt"),
        default="basic",
        help="attention over the context vectors: softmax of the dot products, or of them divided by sqrt(D)",
    )
    group.add_argument(
        "--codes-init",
        choices=CODES_INITS,
        default="normal",
        help="where learnt codes start: normal, N(0, 0.02), where attention is even and the poly-encoder begins as the "
        "mean of all outputs; uniform, U(0, 1), as in the paper's code",
    )
    group.add_argument(
        "--codes-learningrate",
        type=positive,
        default=None,
        help="learning rate of the codes; by default that of the other weights",
    )


def add_cross_flags(parser: ParlaiParser) -> None:
    """The flags of the cross-encoder."""
    group = parser.add_argument_group("Cross-encoder (polyagents)")
    group.add_argument(
        "--cross-negatives",
        type=positive_int,
        default=15,
        help="random training labels as negatives, where the task brings no candidates in training (paper 5.1)",
    )


def read_backbone(opt: Opt) -> BackboneOptions:
    """The encoder's options, with what depends on the backbone filled in."""
    train_layers = opt.get("train_layers")
    if train_layers is None:
        train_layers = "all" if opt["backbone"].startswith(SCRATCH) else "all_but_embeddings"
    scaling = opt.get("output_scaling", 1.0)
    return BackboneOptions(
        opt["backbone"],
        1.0 if scaling == AUTO else scaling,  # measured once there is an encoder
        train_layers,
        opt["precision"],
        opt.get("dropout"),
    )


def read_reduction(opt: Opt) -> ReductionOptions:
    """How states become vectors."""
    return ReductionOptions(opt["reduction_type"], opt["poly_n_codes"])


def read_towers(opt: Opt) -> TowerOptions:
    """What bi- and poly-encoder share."""
    return TowerOptions(opt["share_encoders"], opt["similarity"])


def read_poly(opt: Opt) -> PolyOptions:
    """What only a poly-encoder has."""
    return PolyOptions(opt["polyencoder_type"], opt["poly_attention_type"], opt["codes_init"])


def read_recall_at(opt: Opt) -> tuple[int, ...]:
    """The k of hits@k; M.opt holds them as JSON left them."""
    value: Any = opt["recall_at"]
    return positive_ints(value) if isinstance(value, str) else tuple(value)


def check_not_reserved(opt: Opt) -> None:
    """Refuse ParlAI's values that mean nothing to these agents, before anything is loaded."""
    if "vocab" in (opt["candidates"], opt["eval_candidates"], opt["interactive_candidates"]):
        raise InputError(
            "candidates 'vocab' (every word of the vocabulary) is nothing these agents can rank; use inline, batch, "
            "batch-all-cands or fixed."
        )
    if opt.get("truncate", -1) > 0:
        raise InputError(
            "--truncate would cut contexts and candidates alike; give --text-truncate and --label-truncate."
        )
