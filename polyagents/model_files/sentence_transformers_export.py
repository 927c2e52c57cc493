"""Writes a bi- or cross-encoder as a folder for sentence-transformers: `SentenceTransformer(F)`, `CrossEncoder(F)`.

The folder is a list of that library's modules (`modules.json`), each with its settings and weights; the library itself
is not needed to write it. Its tokenizer produces the same token ids for the same texts, line ends included, as ours;
docs/ecosystem.md lists what cannot be exported, and what differs for long texts.
"""

import json
import os
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, processors
from torch import Tensor

from polyagents.errors import InputError
from polyagents.files.atomic import atomic_folder
from polyagents.model_files.classifiers import class_for, classifier_of
from polyagents.models.bi import BiEncoder
from polyagents.models.cross import CrossEncoder
from polyagents.models.encoder import Encoder
from polyagents.ranking.joint_model import JointModel
from polyagents.ranking.ranking_model import RankingModel
from polyagents.text.tokenizer import RankingTokenizer

CLASSES = "sentence_transformers.models."  # names that its versions 2 to 6 know
IDENTITY = "torch.nn.modules.linear.Identity"
# Texts that tokenizers are likely to treat differently: line ends, spaces, marks, no text, a special token.
PROBES = (
    "hello",
    "",
    "\n",
    "a\nb",
    "  two  spaces \n\n and Words, don't\n",
    "i live in são paulo\r\nüber 日本",
    "[SEP] <s>",
)


def write_as_sentence_transformers(model: RankingModel, folder: str) -> None:
    """Write a bi- or cross-encoder as a folder of sentence-transformers, new or empty.

    Raises:
        InputError: the library has no modules for such a model, or the folder cannot be written.
    """
    refuse_unknown(model)
    with atomic_folder(folder, "convert_weights") as temporary:
        os.makedirs(temporary)
        if isinstance(model.module, BiEncoder):
            write_bi(model, model.module, temporary)
        elif isinstance(model, JointModel) and model.joins_pairs:
            write_classifier(model, temporary)
        elif isinstance(model.module, CrossEncoder):
            write_cross(model, model.module, temporary)


def refuse_unknown(model: RankingModel) -> None:
    """Refuse a model that the library's modules cannot compute; the message names the part."""
    settings, ranking, is_bi = model.settings, model.settings.ranking, isinstance(model.module, BiEncoder)
    if not isinstance(model.module, BiEncoder | CrossEncoder):
        wrong = f"a {model.label}, which is neither a bi- nor a cross-encoder"
    elif ranking.reduction_type == "first_m":
        wrong = "one with --reduction-type first_m"
    elif isinstance(model, JointModel) and not has_their_head(model):
        head, plain = getattr(ranking, "joint_head", None), str(settings.plain_texts).lower()
        wrong = f"one with --joint-head {head} and --plain-texts {plain}"
    elif any(ranking.prompts) and not (settings.plain_texts and is_bi):
        wrong = "one with --context-prompt or --candidate-prompt, which its folders are not given"
    elif model.tokenizer.parlai is not None:
        wrong = "one with ParlAI's own dictionary, whose line ends are pieces of words"
    else:
        return
    raise InputError(f"sentence-transformers has no modules for this model ({wrong}); use Ranker.save_pretrained.")


def has_their_head(model: JointModel) -> bool:
    """Tell whether a cross-encoder's head is a module of the library, or belongs to a model for classification."""
    if model.module.dense is None:
        return model.module.head == "linear" and not model.settings.plain_texts
    as_theirs = model.module.kind == "first" and model.context_encoder.output_scaling == 1
    return model.joins_pairs and as_theirs and class_for(model) is not None


# ---- the two kinds ---------------------------------------------------------------------------------------------------


def write_bi(model: RankingModel, module: BiEncoder, folder: str) -> None:
    """Write one Transformer with its pooling for a shared encoder, and a Router with both encoders otherwise."""
    context, candidate = model.settings.text_truncate, model.settings.label_truncate
    side = "right" if model.settings.plain_texts else "left"
    included = bool(getattr(model.settings.ranking, "include_prompt", True))
    modules = Modules(folder)
    if module.context_encoder is module.candidate_encoder:
        lengths = {"query_length": context, "document_length": candidate}
        write_transformer(model, module.context_encoder, modules.add("Transformer", ""), context, side, lengths)
        write_json(modules.add("Pooling"), "config.json", pooling(module.context_encoder, module.kind, included))
    else:
        root = modules.add("Router", "")
        write_router(root)
        for name, encoder, limit, end in (
            ("query", module.context_encoder, context, side),
            ("document", module.candidate_encoder, candidate, "right"),
        ):
            write_transformer(model, encoder, make_folder(root, f"{name}_0_Transformer"), limit, end, {})
            write_json(make_folder(root, f"{name}_1_Pooling"), "config.json", pooling(encoder, module.kind, included))
    scaling, width = module.context_encoder.output_scaling, module.context_encoder.width
    if scaling != 1 and not module.cosine:
        write_dense(modules.add("Dense"), scaling * torch.eye(width), None, "sentence_embedding")
    if module.cosine:
        modules.add("Normalize")
    named = {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine" if module.cosine else "dot"}
    modules.write(named, dict(zip(("query", "document"), model.tokenizer.prompts, strict=True)))


def write_cross(model: RankingModel, module: CrossEncoder, folder: str) -> None:
    """Write a Transformer over pairs, its pooling, and a Dense from that vector to the score, without activation."""
    settings, encoder = model.settings, module.encoder
    limit = None
    if settings.text_truncate is not None and settings.label_truncate is not None:
        limit = settings.text_truncate + settings.label_truncate
    modules = Modules(folder)
    write_transformer(model, encoder, modules.add("Transformer", ""), limit, "left", {})
    write_json(modules.add("Pooling"), "config.json", pooling(encoder, module.kind))
    weight, bias = module.linear.weight.detach() * encoder.output_scaling, module.linear.bias.detach()
    write_dense(modules.add("Dense"), weight, bias, "scores")
    modules.write({"model_type": "CrossEncoder", "activation_fn": IDENTITY}, {})


def write_classifier(model: JointModel, folder: str) -> None:
    """Write a model of transformers for sequence classification, whose scores the library takes as they are."""
    theirs = classifier_of(model)
    theirs.config.sentence_transformers = {"activation_fn": IDENTITY}
    theirs.save_pretrained(folder)
    write_tokenizer(model, model.context_encoder, folder, model.settings.text_truncate, "right")


class Modules:
    """The list of modules of a folder."""

    def __init__(self, folder: str):
        self.folder = folder
        self.listed: list[dict[str, Any]] = []

    def add(self, kind: str, path: str | None = None) -> str:
        """Add a module to the list, and create the folder for its files, whose path is returned.

        Args:
            path: its folder within the folder; by default its number and class.
        """
        number = len(self.listed)
        path = f"{number}_{kind}" if path is None else path
        self.listed.append({"idx": number, "name": str(number), "path": path, "type": f"{CLASSES}{kind}"})
        return make_folder(self.folder, path)

    def write(self, config: dict[str, Any], prompts: dict[str, str]) -> None:
        """Write the list, and the settings of the whole."""
        write_json(self.folder, "modules.json", self.listed)
        named: dict[str, Any] = {"prompts": prompts, "default_prompt_name": None}
        write_json(self.folder, "config_sentence_transformers.json", config | named)


# ---- modules ---------------------------------------------------------------------------------------------------------


def write_transformer(
    model: RankingModel, encoder: Encoder, folder: str, limit: int | None, side: str, lengths: dict[str, int | None]
) -> None:
    """Write an encoder with its tokenizer.

    Args:
        limit: the maximal tokens; None for no limit.
        side: the side where longer texts are truncated, left or right.
        lengths: for the library's tasks "query" and "document", if they differ.
    """
    encoder.backbone.save_pretrained(folder)
    write_tokenizer(model, encoder, folder, limit, side)
    given = {name: length for name, length in lengths.items() if length is not None}
    write_json(folder, "sentence_bert_config.json", {"transformer_task": "feature-extraction", **given})


def write_tokenizer(model: RankingModel, encoder: Encoder, folder: str, limit: int | None, side: str) -> None:
    """Write the tokenizer of an encoder; for the arguments see `write_transformer`."""
    compiled = exported_tokenizer(model.tokenizer)
    refuse_other_ids(model.tokenizer, compiled)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if encoder.has_segments else [])]
    settings: dict[str, Any] = {"truncation_side": side, "model_input_names": names, "split_special_tokens": True}
    settings |= {} if limit is None else {"model_max_length": limit}
    model.tokenizer.to_transformers(compiled, **settings).save_pretrained(folder)


def pooling(encoder: Encoder, kind: str, include_prompt: bool = True) -> dict[str, Any]:
    """Build the settings of a Pooling that equals our red(), by names that all versions of the library read."""
    mode = "mean_tokens" if kind == "mean" else "lasttoken" if encoder.causal else "cls_token"
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
    return {
        "word_embedding_dimension": encoder.width,
        **{f"pooling_mode_{name}": name == mode for name in modes},
        "include_prompt": include_prompt,
    }


def write_router(folder: str) -> None:
    """Write the settings of a Router that sends queries and documents to their own encoder, documents by default."""
    routes = {name: [f"{name}_0_Transformer", f"{name}_1_Pooling"] for name in ("query", "document")}
    types = {path: f"{CLASSES}{path.rsplit('_', 1)[1]}" for paths in routes.values() for path in paths}
    parameters = {"default_route": "document", "allow_empty_key": True}
    write_json(folder, "router_config.json", {"types": types, "structure": routes, "parameters": parameters})


def write_dense(folder: str, weight: Tensor, bias: Tensor | None, output: str) -> None:
    """Write a linear layer, weight [out, in] and bias [out] or None, that reads the pooled vector."""
    config = {
        "in_features": weight.size(1),
        "out_features": weight.size(0),
        "bias": bias is not None,
        "activation_function": IDENTITY,
    }
    named = {} if output == "sentence_embedding" else {"module_output_name": output}
    write_json(folder, "config.json", config | named)
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    contiguous = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, os.path.join(folder, "model.safetensors"))


# ---- the tokenizer ---------------------------------------------------------------------------------------------------


def exported_tokenizer(tokenizer: RankingTokenizer) -> Tokenizer:
    """Return a tokenizer that reads line ends as ours does, and puts [S] around a text and around both of a pair.

    One that reads plain texts does all this itself.
    """
    if tokenizer.plain:
        return tokenizer.compiled
    content = json.loads(tokenizer.compiled.to_str())
    newline, special = tokenizer.special.newline, tokenizer.special
    added = [token for token in content["added_tokens"] if token["content"] == newline]
    if added:  # ours, found in no text: it is found as a line end there
        added[0].update({"content": "\n", "special": False, "normalized": False, "lstrip": False, "rstrip": False})
        vocabulary = content["model"].get("vocab")
        if isinstance(vocabulary, dict) and newline in vocabulary:  # a scratch backbone's
            vocabulary["\n"] = vocabulary.pop(newline)
    else:  # the vocabulary's own, as long as no other character joins it
        split = {"type": "Split", "pattern": {"String": "\n"}, "behavior": "Isolated", "invert": False}
        before = [content["pre_tokenizer"]] if content["pre_tokenizer"] else []
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, *before]}
    compiled = Tokenizer.from_str(json.dumps(content))
    start, end = (special.start, tokenizer.start_id), (special.end, tokenizer.end_id)
    compiled.post_processor = processors.TemplateProcessing(
        single=[f"{special.start}:0", "$A:0", f"{special.end}:0"],
        pair=[f"{special.start}:0", "$A:0", f"{special.end}:0", f"{special.start}:1", "$B:1", f"{special.end}:1"],
        special_tokens=list(dict.fromkeys((start, end))),
    )
    compiled.encode_special_tokens = True  # as `split_special_tokens` has transformers do
    return compiled


def refuse_other_ids(tokenizer: RankingTokenizer, exported: Tokenizer) -> None:
    """Refuse a tokenizer that reads some texts differently once it is exported."""
    for text, ids in zip(PROBES, tokenizer.contexts(PROBES, None), strict=True):
        if exported.encode(tokenizer.prompts[0] + text).ids != ids:
            raise InputError(
                f"sentence-transformers cannot read texts as this model's tokenizer does ({text!r} is one that it "
                f"would read in another way); use Ranker.save_pretrained."
            )


# ---- files -----------------------------------------------------------------------------------------------------------


def make_folder(folder: str, name: str) -> str:
    """Create a folder within a folder, unless it exists."""
    path = os.path.join(folder, name)
    os.makedirs(path, exist_ok=True)
    return path


def write_json(folder: str, name: str, content: Any) -> None:
    """Write a small JSON file."""
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(content, file, indent=2)
