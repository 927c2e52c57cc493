"""The peers that ours is compared with: ParlAI's own agents, and sentence-transformers' bi- and cross-encoder.

    agent = parlai_agent("poly", layers=6, width=384, heads=12, m=64, dict_file="M.dict")
    set_fixed_candidates(agent, texts, vectors)
    reply(agent, "where is canada")

Nothing is trained or downloaded, and nothing is timed here: each function does one thing that is worth timing, in the
way its library does it. ParlAI's agents have random weights, which take as long as learnt ones, but our tokens: both
sides encode the same ids. The letters of shapes: C candidates, M context vectors, D width.
"""

import copy
import json
import tempfile
from collections.abc import Sequence
from typing import Any

import torch
from parlai.agents.transformer.biencoder import BiencoderAgent
from parlai.agents.transformer.crossencoder import CrossencoderAgent
from parlai.agents.transformer.polyencoder import PolyencoderAgent
from parlai.core.params import ParlaiParser
from parlai.core.torch_ranker_agent import TorchRankerAgent
from tokenizers import Tokenizer, processors
from torch import Tensor, nn
from transformers import BertForSequenceClassification, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from polyagents.benchmarks import measure
from polyagents.errors import InputError
from polyagents.models.cross import CrossEncoder
from polyagents.parlai_agents.dictionary import TextDictionary
from polyagents.parlai_patches import patches
from polyagents.parlai_patches.compat import quiet
from polyagents.ranker import Ranker
from polyagents.text.tokenizer import RankingTokenizer

TEXT_TRUNCATE = 360  # tokens of a context and of a candidate, the special tokens counted: our defaults, the paper's
LABEL_TRUNCATE = 72


class OurTokens:
    """A mixin for ParlAI's agents that replaces their dictionary by ours."""

    @staticmethod
    def dictionary_class() -> type[TextDictionary]:
        """TorchAgent: the tokenizer of the backbone."""
        return TextDictionary


class ParlaiBi(OurTokens, BiencoderAgent):
    """`-m transformer/biencoder`."""


class ParlaiPoly(OurTokens, PolyencoderAgent):
    """`-m transformer/polyencoder`."""


class ParlaiCross(OurTokens, CrossencoderAgent):
    """`-m transformer/crossencoder`."""


PARLAI = {
    "bi": (ParlaiBi, "transformer/biencoder"),
    "poly": (ParlaiPoly, "transformer/polyencoder"),
    "cross": (ParlaiCross, "transformer/crossencoder"),
}

# ---- ParlAI's own agents ---------------------------------------------------------------------------------------------


def parlai_agent(
    kind: str,
    layers: int,
    width: int,
    heads: int,
    m: int = 64,
    polyencoder_type: str = "codes",
    *,
    dict_file: str,
    **flags: Any,
) -> TorchRankerAgent:
    """One of ParlAI's agents with random weights, ready to evaluate, or to train with `datatype="train"`.

    It is on the CPU, but for `no_cuda=False`.

    Args:
        layers: of each encoder.
        width: D; the inner width of a layer is 4 D, as BERT's.
        heads: of each layer's attention.
        polyencoder_type: codes or n_first, ParlAI's two.
        dict_file: `M.dict` of one of our models, whose tokens are used.
        flags: others of ParlAI's own.
    """
    patches.apply()  # without this, ParlAI's training does not run on today's torch
    cls, model = PARLAI[kind]
    poly = {"poly_n_codes": m, "polyencoder_type": polyencoder_type, "poly_attention_type": "basic"}
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # All flags that are not sizes are from ParlAI's own ConvAI2 recipe (projects/polyencoder/README.md there),
        # which make its transformer BERT's: learnt positions and segments, norm after each block, gelu.
        opt = ParlaiParser(True, True).parse_kwargs(
            model=model,
            n_layers=layers,
            embedding_size=width,
            ffn_size=4 * width,
            n_heads=heads,
            n_positions=1024,
            n_segments=2,
            variant="xlm",
            activation="gelu",
            learn_positional_embeddings=True,
            embeddings_scale=False,
            output_scaling=0.06,
            reduction_type="first",  # ours; the recipe has the mean for bi and poly
            share_encoders=False,  # two encoders, like ours
            share_word_embeddings=False,
            # ParlAI truncates a context and then adds both [S]; a candidate gets them before it is truncated.
            text_truncate=TEXT_TRUNCATE - 2,
            label_truncate=LABEL_TRUNCATE,
            **(poly if kind == "poly" else {}),
            **{"datatype": "valid", "no_cuda": True} | flags,  # so that no optimiser is made, and on the CPU
        )
        opt["dict_file"], opt["backbone"] = dict_file, ""  # our dictionary's flags
        agent: Any = cls(opt)
    agent.model.eval()
    return agent


def set_fixed_candidates(agent: TorchRankerAgent, texts: Sequence[str], vectors: Tensor) -> None:
    """Let an agent rank these candidates from now on, as `--eval-candidates fixed` and a chat do.

    Only `TorchRankerAgent.set_fixed_candidates` is bypassed, which would read the texts from a file and encode them.

    Args:
        agent: a bi- or poly-encoder of ParlAI.
        texts: C candidates.
        vectors: their encodings [C, D].
    """
    agent.fixed_candidates = list(texts)
    agent.num_fixed_candidates = len(agent.fixed_candidates)
    # With given encodings, eval_step uses only the number of dimensions of the ids (2: all examples share them).
    agent.fixed_candidate_vecs = torch.full((len(texts), 1), agent.NULL_IDX)
    agent.fixed_candidate_encs = as_encodings(agent, vectors.float().contiguous())
    agent.eval_candidates = agent.opt["eval_candidates"] = "fixed"
    agent.ignore_bad_candidates = True  # as in set_interactive_mode


def as_encodings(agent: TorchRankerAgent, vectors: Tensor) -> Tensor:
    """Return a view of vectors [C, D] in the shape that the agent keeps; ParlAI's poly-encoder wants [1, C, D]."""
    return vectors.unsqueeze(0) if isinstance(agent, PolyencoderAgent) else vectors


def reply(agent: TorchRankerAgent, text: str) -> str:
    """Compute a whole reply, message in and text out: tokenise, encode the context, score, sort, choose.

    It fits our agents as well as ParlAI's. Every message is a conversation of its own. Of all C ranks ParlAI's
    `eval_step` makes Python objects, to take the texts of the first 100: that is here, and not in `score_and_sort`.

    Args:
        text: the message, which is a conversation of its own.
    """
    agent.reset()
    agent.observe({"text": text, "episode_done": True})
    answer: str = agent.act()["text"]
    return answer


def train(agent: TorchRankerAgent, texts: Sequence[str], labels: Sequence[str]) -> list[Any]:
    """Do a whole training step, texts in and weights out: tokenise, pad, forward, backward, clip, update.

    It works for our agents as well as ParlAI's: this is what ParlAI's batches of B conversations call.

    Args:
        agent: made with `datatype="train"`.
        texts: B contexts.
        labels: the right reply of each.

    Returns:
        The agent's answers, with the metrics that it recorded.
    """
    seen = []
    for text, label in zip(texts, labels, strict=True):
        agent.reset()
        seen.append(agent.observe({"text": text, "labels": (label,), "episode_done": True}))
    replies: list[Any] = agent.batch_act(seen)
    return replies


@torch.no_grad()
def encode_context(agent: TorchRankerAgent, text: str) -> Any:
    """Encode one context as ParlAI's `score_candidates` does before it meets a candidate.

    Returns:
        bi: [1, D]; poly: vectors [1, M, D] and mask [1, M].
    """
    agent.reset()
    batch = agent.batchify([agent.observe({"text": text, "episode_done": True})])
    agent.reset()  # ParlAI insists on an act() between two messages
    if isinstance(agent, PolyencoderAgent):
        return agent.get_ctxt_rep(batch)
    return agent.model(xs=batch.text_vec, mems=None, cands=None)[0]


@torch.no_grad()
def score_and_sort(agent: TorchRankerAgent, context: Any, vectors: Tensor, k: int = 10) -> tuple[Tensor, Tensor]:
    """Do the middle of ParlAI's `eval_step`: scores of one context with C kept candidates, and their order.

    ParlAI always sorts all C (`--rank-top-k` is -1), so k saves it nothing.

    Args:
        agent: a bi- or poly-encoder of ParlAI.
        vectors: [C, D] fp32.
        k: how many are returned, best first.

    Returns:
        Scores [k] and indices [k].
    """
    encodings = as_encodings(agent, vectors)
    if isinstance(agent, PolyencoderAgent):
        scores = agent.get_scores(*context, encodings)
    else:
        scores = agent._score(context, encodings)
    ordered, ranks = scores.sort(1, descending=True)
    return ordered[0, :k], ranks[0, :k]


def encode_candidates(agent: TorchRankerAgent, texts: Sequence[str]) -> Tensor:
    """Encode candidate texts as [C, D], in the way ParlAI encodes a fixed set.

    It tokenises one text at a time, pads all of them to the longest of the set, and encodes 256 at once in their order
    (`--encode-candidate-vecs-batchsize`).
    """
    with quiet():
        ids = agent._make_candidate_vecs(list(texts))
    return encode_ids(agent, ids)


def encode_ids(agent: TorchRankerAgent, ids: Any) -> Tensor:
    """Encode token ids of C candidates of one length [C, T] as `encode_candidates` does."""
    with quiet():
        encodings: Tensor = agent._make_candidate_encs(torch.as_tensor(ids))
    return encodings.reshape(len(ids), -1)


def rank_pairs(agent: TorchRankerAgent, context: str, texts: Sequence[str]) -> list[str]:
    """Rank with ParlAI's cross-encoder one context's own candidates; return the first 100 texts, best first.

    This is a message with `label_candidates`, observe and act, the only source of candidates that it ranks: its
    `score_candidates` wants them with a dimension for the examples, which fixed ones lack. All C pairs go through the
    encoder at once, each padded to the longest candidate, so memory grows with C.
    """
    agent.reset()
    agent.observe({"text": context, "label_candidates": list(texts), "episode_done": True})
    ranked: list[str] = agent.act()["text_candidates"]
    return ranked


# ---- sentence-transformers -------------------------------------------------------------------------------------------

# sentence-transformers scores tanh(W h + b) where ours scores h itself, the first output. With W = e I, b = 0 and our
# linear layer divided by e the two agree: tanh(x) is x but for x^3 / 3, here 6e-6 of x at most while |h| < 17. A power
# of two, so that neither product is rounded.
POOLER_SCALE = 2.0**-12


def st_cross_encoder(ranker: Ranker) -> Any:
    """Convert one of our cross-encoders to a `CrossEncoder` on the CPU in fp32, with the same weights and tokens.

    Its `.predict([(context, candidate), ...])` returns our scores (fp32 numpy [P]), up to rounding, unless a text is
    truncated: it truncates the longer text of a pair, we truncate a context to 360 and a candidate to 72 tokens. The
    pooler that its `BertForSequenceClassification` puts before the linear layer has weights that change nothing, see
    POOLER_SCALE.

    Args:
        ranker: one of our cross-encoders. Its backbone is a BERT (MiniLM is), its reduction `first`.
    """
    from sentence_transformers import (
        CrossEncoder as SentenceCrossEncoder,
    )  # takes seconds to import, and is only needed here

    module = ranker.model.module
    if not isinstance(module, CrossEncoder):
        raise InputError(f"The model to re-rank with is a {ranker.model.label}; give a cross-encoder.")
    backbone = module.encoder.backbone
    if backbone.config.model_type != "bert" or module.kind != "first":
        raise InputError(
            f"A cross-encoder on {backbone.config.model_type} with --reduction-type {module.kind} has no equal in "
            f"sentence-transformers; give one on a BERT (MiniLM is one) with --reduction-type first."
        )
    config: Any = copy.deepcopy(backbone.config)
    config.num_labels = 1
    model = BertForSequenceClassification(config)
    model.bert.load_state_dict(backbone.state_dict(), strict=False)  # the pooler, which ours lacks, follows
    with torch.no_grad():
        pooler: Any = model.bert.pooler
        nn.init.eye_(pooler.dense.weight).mul_(POOLER_SCALE)
        nn.init.zeros_(pooler.dense.bias)
        model.classifier.weight.copy_(module.linear.weight * (module.encoder.output_scaling / POOLER_SCALE))
        model.classifier.bias.copy_(module.linear.bias)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        pair_tokenizer(ranker.model.tokenizer).save_pretrained(folder)
        return SentenceCrossEncoder(
            folder,
            max_length=TEXT_TRUNCATE + LABEL_TRUNCATE,
            device="cpu",
            activation_fn=nn.Identity(),  # its own default is a sigmoid, which keeps the order and loses the score
            local_files_only=True,
        )


def st_folder(tokenizer: RankingTokenizer, backbone: PreTrainedModel, folder: str) -> None:
    """Write one of our backbones, and our tokens, in a form that sentence-transformers can load.

    Args:
        backbone: has a row of embeddings for each of our tokens.
    """
    transformers_logging.disable_progress_bar()
    backbone.save_pretrained(folder)
    transformers_logging.enable_progress_bar()
    pair_tokenizer(tokenizer).save_pretrained(folder)


def st_bi_encoder(folder: str, precision: str) -> Any:
    """Make a `SentenceTransformer` in training: one encoder for both texts, with the first output.

    Args:
        precision: fp32, or bf16 by autocast around the whole model, as its own trainer has it.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # it would report that the unused pooler is random
    transformers_logging.disable_progress_bar()
    encoder = Transformer(folder, max_seq_length=TEXT_TRUNCATE)
    transformers_logging.set_verbosity(level)
    transformers_logging.enable_progress_bar()
    pooling = Pooling(encoder.get_embedding_dimension(), "cls")
    where = measure.device()
    model: Any = SentenceTransformer(modules=[encoder, pooling], device=str(where))
    if precision == "bf16":
        model.forward = torch.autocast(where.type, torch.bfloat16)(model.forward)
    return model.train()


def st_loss(model: Any, **mini_batch: int) -> Any:
    """Make its loss over the other labels of a batch, like ours: dot products, not scaled.

    Args:
        mini_batch: `mini_batch_size` in texts or `mini_batch_num_tokens` for its cached loss; nothing for the plain
            one.
    """
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.util import dot_score

    cls: Any = losses.CachedMultipleNegativesRankingLoss if mini_batch else losses.MultipleNegativesRankingLoss
    return cls(model, scale=1.0, similarity_fct=dot_score, **mini_batch)


def st_features(model: Any, texts: Sequence[str], labels: Sequence[str]) -> list[Any]:
    """Make its two padded batches of B contexts and labels, truncated like ours: the end of a context stays.

    Args:
        texts: B contexts.
    """
    features = []
    for column, length, side in ((texts, TEXT_TRUNCATE, "left"), (labels, LABEL_TRUNCATE, "right")):
        model.tokenizer.truncation_side = side
        prepared = model.preprocess(list(column), max_length=length)
        features.append(
            {name: part.to(model.device) if isinstance(part, Tensor) else part for name, part in prepared.items()}
        )
    return features


def pair_tokenizer(tokenizer: RankingTokenizer) -> PreTrainedTokenizerFast:
    """Convert our tokenizer for Hugging Face: a pair becomes [S] context [S] [S] candidate [S], as in `pad_joint`.

    A line end becomes our newline token, as in `RankingTokenizer.encode`.
    """
    special = tokenizer.special
    content = json.loads(tokenizer.compiled.to_str())
    for token in content["added_tokens"]:
        if token["content"] == special.newline:
            token["content"] = "\n"
    vocabulary = content["model"]["vocab"]
    if special.newline in vocabulary:  # of a learnt vocabulary; a pretrained one has it among the added tokens only
        vocabulary["\n"] = vocabulary.pop(special.newline)
    compiled = Tokenizer.from_str(json.dumps(content))
    compiled.post_processor = processors.TemplateProcessing(
        single=f"{special.start} $A {special.end}",
        pair=f"{special.start}:0 $A:0 {special.end}:0 {special.start}:1 $B:1 {special.end}:1",
        special_tokens=[(special.start, tokenizer.start_id), (special.end, tokenizer.end_id)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=compiled,
        pad_token=special.pad,
        cls_token=special.start,
        sep_token=special.end,
        unk_token="[UNK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],  # without the second a pair is one segment
        truncation_side="left",  # keeps the part nearest to the reply
    )
