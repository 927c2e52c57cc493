"""The families of backbones that work, in every architecture: `python -m polyagents.benchmarks.backbones`.

Every text family that transformers' AutoModel knows gets a tiny model with random weights. It is trained for three
steps, ranked with, saved and loaded, each family in a process of its own. What is refused must be refused before the
first step. A results file is continued: what is in it is not tried again.
"""

import contextlib
import itertools
import json
import multiprocessing
import os
import resource
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES
from transformers.utils import logging as transformers_logging

from polyagents import Ranker
from polyagents.arguments import CommandParser
from polyagents.console import markdown
from polyagents.errors import InputError, first_line
from polyagents.models.backbone import reads_texts
from polyagents.training_loop.callbacks import Callback
from polyagents.training_loop.from_python import train as _train  # noqa: F401  once, before processes are forked

ARCHITECTURES = ("bi", "poly", "cross", "uni")
SECONDS, MEMORY, WEIGHTS = 60, 2 << 30, 8_000_000  # a process's time of the processor; weights of a tiny model, at most
PATIENCE = 10  # times as long may a process take on a busy machine
WORKS = "works"
PAD, START, END, POSITIONS = 1, 2, 3, 160
SPECIAL = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
SPECIAL |= {"mask_token": "<mask>"}
COLOURS = ("red", "blue", "green", "black", "white", "pink", "grey", "brown")
EXAMPLES = [{"context": f"question {colour} ?", "label": f"answer {colour} ."} for colour in COLOURS]
LONG = "a text that is longer than the others , and than some backbones have positions for . " * 8

# Numbers of configurations by their name; all others above 64 that are named as a width become WIDTH.
WIDTH, HEADS = 32, 4
WIDTHS = ("_size", "_dim", "_rank", "_width", "d_model", "n_embd", "dim", "d_embed", "dim_model", "word_embed_proj_dim")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")
NUMBERS = {
    **dict.fromkeys(("n_head", "n_heads", "num_heads", "num_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"), HEADS),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), POSITIONS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "d_inner", "n_inner", "hidden_dim"), 2 * WIDTH),
    **dict.fromkeys(("num_experts_per_tok", "moe_k"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_head_dim", "sliding_window", "attention_window"), 16),
    **dict.fromkeys(("head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    "moe_num_experts": HEADS,
}
# What a family's sizes must be, beside each other.
OWN: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 4},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "glm4v_moe_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 0]}},
    "glm4v_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
    "glm_image_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"mamba_n_heads": 8, "layer_types": ["mamba", "attention"]},
    "hunyuan_vl_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 1, 1]}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lilt": {"hidden_size": 48},
    "mamba2": {"num_heads": 8},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [10, 16]},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}


class Late(Exception):
    """A fault that was found after the first step of a run."""


class Steps(Callback):
    """Counts the steps of a run."""

    count = 0

    def on_step_end(self, trainer: Any) -> None:
        """Count one."""
        self.count += 1


# ---- families and their tiny models ----------------------------------------------------------------------------------


def model_class(family: str) -> Any:
    """Return the class that AutoModel takes for a family."""
    found = MODEL_MAPPING[transformers.CONFIG_MAPPING[family]]
    return found[0] if isinstance(found, list | tuple) else found


def text_families(known: Iterable[str] = MODEL_MAPPING_NAMES) -> list[str]:
    """Return the families, by the names of transformers, that read token ids and nothing else."""
    families = []
    for family in known:
        try:
            if reads_texts(model_class(family), transformers.CONFIG_MAPPING[family]):
                families.append(family)
        except (ImportError, ValueError):  # it needs a library for sounds or pictures, or has no such class
            continue
    return sorted(families)


def small(name: str, value: Any, words: int, layers: int) -> Any:
    """Return the value of a tiny configuration.

    Args:
        value: its default.

    Returns:
        The new value, or the same one.
    """
    if name in LAYERS:
        return layers
    if name.startswith(("vocab_size", "n_vocab")):
        return words
    if isinstance(value, list | tuple):  # of 12 and more: something for each layer
        return [small(name, each, words, layers) for each in (value[:layers] if len(value) >= 12 else value)]
    if name in NUMBERS and not isinstance(value, bool):
        return NUMBERS[name]
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return WIDTH if value > 64 and name.endswith(WIDTHS) and not name.endswith("kernel_size") else value


def configurations(family: str, words: int) -> Iterator[Any]:
    """Yield tiny configurations of a family, the smallest first; families differ in what fits together."""
    kind = transformers.CONFIG_MAPPING[family]
    default = kind()
    values = {name: value for name, value in default.to_dict().items() if name != "model_type"}
    ids = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "pad_index": PAD}
    heads, width = (values.get(name) for name in ("num_attention_heads", "hidden_size"))
    own_head = values.get("head_dim") or (width // heads if isinstance(heads, int) and width else WIDTH)
    for large_heads, groups, layers in itertools.product((False, True), (2, HEADS), (2, 4, 8)):
        tiny = {name: small(name, value, words, layers) for name, value in values.items()}
        changed = {name: value for name, value in tiny.items() if value != values[name]}
        changed |= {name: number for name, number in ids.items() if name in values}
        if "num_key_value_heads" in values:
            changed["num_key_value_heads"] = groups
        if large_heads:  # rotary positions of some families divide a head in parts of fixed size
            changed |= {"hidden_size": 2 * own_head, "num_attention_heads": 2}
            changed |= {"head_dim": own_head} if "head_dim" in values else {}
            changed |= {"num_key_value_heads": 2} if "num_key_value_heads" in values else {}
        try:
            yield kind(**changed | OWN.get(family, {}))
        except Exception:  # each family has its own reasons
            continue


def tiny_model(family: str, words: int) -> Any:
    """Build a tiny model of a family, random but the same every time.

    Raises:
        ValueError: no configuration was found that fits together and is small.
    """
    why = "no configuration fits together"
    for config in configurations(family, words):
        try:
            with torch.device("meta"):
                weights = sum(weight.numel() for weight in model_class(family)(config).parameters())
            if weights > WEIGHTS:
                why = f"{weights:,} weights"
                continue
            torch.manual_seed(0)
            model = model_class(family)(config).eval()
            if not config.is_encoder_decoder:
                ids = torch.tensor([[START, *range(5, 21), END]])
                model(input_ids=ids, attention_mask=torch.ones_like(ids))
            for weight in model.parameters():  # as they come, random weights give all texts nearly the same outputs
                weight.data *= 4 if weight.ndim > 1 else 1
            return model
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
    raise ValueError(why)


def tokenizer() -> "transformers.PreTrainedTokenizerFast":
    """Build a tokenizer of bytes with RoBERTa's special tokens; 0, which CPM-Ant never attends to, is none of them."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = dict.fromkeys(["<unk>", "<pad>", "<s>", "</s>", "<mask>", *letters])
    of_bytes = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    of_bytes.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=of_bytes, **SPECIAL)


def write(family: str, folder: str) -> None:
    """Write a tiny model of a family and its tokenizer as a folder that `--backbone` takes.

    Raises:
        ValueError: no tiny model can be made.
    """
    words = tokenizer()
    tiny_model(family, len(words)).save_pretrained(folder)
    words.save_pretrained(folder)


# ---- one family ------------------------------------------------------------------------------------------------------


def outcome(folder: str, architecture: str) -> str:
    """Train, rank, save and load a model of a folder's backbone.

    Returns:
        WORKS, with the flags that it needs, or the sentence that refuses the run before its first step.

    Raises:
        Late: something failed later.
    """
    steps = Steps()
    given: dict[str, Any] = {"backbone": folder, "text_truncate": 60, "label_truncate": 30, "batchsize": 4}
    given |= {"max_train_steps": 3, "progress": False, "no_cuda": True, "callbacks": [steps]}
    for flags in ({}, {"train_layers": "all"}):
        try:
            ranker = Ranker.train(EXAMPLES, None, architecture, EXAMPLES, **given | flags)
            break
        except InputError as error:
            if steps.count:
                raise Late(f"refused after {steps.count} steps: {error}") from error
            if flags or not str(error).startswith("--train-layers"):
                return str(error).replace(folder, "FOLDER")
    file = os.path.join(folder, "M")
    ranker.save(file)
    check(ranker, file, architecture in ("cross", "uni"))
    return WORKS + (" with --train-layers all" if flags else "")


def check(ranker: Ranker, file: str, is_joint: bool) -> None:
    """Load a trained model and compare what it computes, alone and beside other texts, also long ones.

    Args:
        is_joint: whether it reads context and candidate together.

    Raises:
        Late: something differs.
    """
    contexts, candidates = ["hi", "how are you ?", LONG[:55]], ["fine", "a long answer to you .", "no"]
    loaded, alone = Ranker.load(file, no_cuda=True), np.zeros((len(contexts), len(candidates)))
    for row, column in np.ndindex(alone.shape):
        alone[row, column] = loaded.score(contexts[row], candidates[column : column + 1])[0]
        loaded.model.weights_changed()  # nothing is known of the texts
    scores = loaded.score(contexts, candidates)
    same("alone", alone, scores)
    same("loaded", ranker.score(contexts, candidates), scores)
    best = loaded.rank(contexts[0], candidates)
    same("ranked", np.array([match.score for match in best]), np.sort(scores[0])[::-1])
    if not is_joint:
        same("stored", loaded.score(contexts, loaded.encode_candidates(candidates)), scores)
    most = loaded.model.context_encoder.max_tokens
    longest = 400 if most is None else most - 30 * is_joint
    same(
        "long", Ranker.load(file, no_cuda=True, text_truncate=longest).score([*contexts, LONG], candidates)[:3], scores
    )
    if most is not None:
        try:
            Ranker.load(file, no_cuda=True, text_truncate=longest + 1)
        except InputError:
            return
        raise Late("texts longer than the positions are not refused")


def same(what: str, first: np.ndarray, second: np.ndarray) -> None:
    """Compare scores up to rounding.

    Args:
        second: of the same shape, which differ from each other.

    Raises:
        Late: they differ, or are not finite.
    """
    off = float(np.abs(first - second).max() / np.ptp(second))
    if not off < 2e-3:
        raise Late(f"{what}: scores are off by {off:.2g} of their range {np.ptp(second):.2g}, at {second.max():.2g}")


def tried(family: str) -> dict[str, str]:
    """Try a family in this process.

    Returns:
        The outcome for each architecture; or why the family was not tried, as "not tried".
    """
    transformers_logging.set_verbosity_error()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            write(family, folder)
        except ValueError as error:
            return {"not tried": first_line(error)}
        for architecture in ARCHITECTURES:
            try:
                results[architecture] = outcome(folder, architecture)
            except Exception as error:
                if "allocate memory" in str(error):
                    return {"not tried": f"its {architecture}-encoder took more than {MEMORY >> 30} GB"}
                results[architecture] = f"FAILED: {type(error).__name__}: {first_line(error)}"
    return results


def in_a_process(family: str) -> dict[str, str]:
    """Try a family in a process of its own, with SECONDS and MEMORY."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        sending.send(tried(family))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    sending.close()
    try:
        return receiving.recv() if receiving.poll(PATIENCE * SECONDS) else {"not tried": "it waits"}
    except EOFError:
        return {"not tried": f"its process took more than {SECONDS} seconds or {MEMORY >> 30} GB"}
    finally:
        process.kill()
        process.join()


# ---- all families, and the page --------------------------------------------------------------------------------------


def read_results(path: str) -> dict[str, dict[str, str]]:
    """Read a file of results, by family; a line that a killed process has begun is dropped."""
    results = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(json.JSONDecodeError):
                    result = json.loads(line)
                    results[result.pop("family")] = result
    return results


def sweep(families: Sequence[str], path: str) -> dict[str, dict[str, str]]:
    """Try the families that a file of results lacks, and add them to it.

    Returns:
        The results of all families, by name.
    """
    results = read_results(path)
    with open(path, "a", encoding="utf-8") as out:
        for family in families:
            if family not in results:
                results[family] = in_a_process(family)
                line = json.dumps({"family": family, **results[family]}, ensure_ascii=False)
                out.write(f"\n{line}\n")  # a line that was cut ends here
                out.flush()
                print(line, flush=True)
    return {family: results[family] for family in families}


def page(results: Mapping[str, Mapping[str, str]]) -> str:
    """Write the results of all families as a page of the documentation.

    Args:
        results: the outcome for each architecture, by family.
    """
    tested = {family: result for family, result in results.items() if "not tried" not in result}
    sentences: dict[str, str] = {}  # the refusal -> its number
    rows = []
    for family, result in tested.items():
        cells = []
        for architecture in ARCHITECTURES:
            said = result[architecture].replace(f"({family})", "(...)")
            if not said.startswith(WORKS):
                said = f"[{sentences.setdefault(said, str(len(sentences) + 1))}](#refusals)"
            cells.append(said.replace(WORKS + " with --train-layers all", f"{WORKS}, all layers"))
        rows.append({"family": f"`{family}`"} | dict(zip(ARCHITECTURES, cells, strict=True)))
    working = [sum(result[kind].startswith(WORKS) for result in tested.values()) for kind in ARCHITECTURES]
    counts = ", ".join(f"{kind} {number}" for kind, number in zip(ARCHITECTURES, working, strict=True))
    left_out = {family: result["not tried"] for family, result in results.items() if family not in tested}
    paragraphs = [
        f"`python -m polyagents.benchmarks.backbones` wrote this page. `AutoModel` of transformers "
        f"{transformers.__version__} knows {len(results)} families that read only texts. {len(tested)} of them were "
        f"tried, with tiny models and random weights. Each was trained for three steps, ranked with, saved and loaded. "
        f"Scores were compared alone, with longer texts in the batch, and with texts up to the last position. "
        f"**Works: {counts}.**",
        "Everything else is refused before the first step, with a sentence that the table numbers. *All layers* needs "
        "`--train-layers all`, because the family has no list of its layers. A family with pretrained weights of "
        "another shape may differ: each run tries its own backbone in the same way before its first step.",
    ]
    lines = ["# Backbones", "", *("\n".join(textwrap.wrap(text, 100)) + "\n" for text in paragraphs), markdown(rows)]
    lines += ["", "## Refusals", "", *(wrapped(f"{number}. ", said) for said, number in sentences.items())]
    if left_out:
        lines += ["", f"## Not tried: {len(left_out)}", "", "No tiny model could be made of these automatically:", ""]
        lines += [wrapped("- ", f"`{family}`: {why}") for family, why in left_out.items()]
    return "\n".join(lines) + "\n"


def wrapped(mark: str, text: str) -> str:
    """Format an entry of a list in lines of at most 100 characters."""
    plain = text.replace("<", "\\<").replace("*", "\\*")  # no markup
    return "\n".join(textwrap.wrap(plain, 100, initial_indent=mark, subsequent_indent=" " * len(mark)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Try all families, or those that are named; write the page about all where none failed."""
    parser = CommandParser("python -m polyagents.benchmarks.backbones", "Try every family of backbones.")
    parser.add_argument("families", nargs="*", help="only these; no page is written then")
    parser.add_argument("--results", default="backbones.jsonl", help="file of results, which is continued")
    parser.add_argument("--page", default="docs/backbones.md", help="the page to write")
    opt = parser.parse_args(arguments)
    torch.set_num_threads(1)
    results = sweep(opt.families or text_families(), opt.results)
    failed = sorted(family for family, result in results.items() if "FAILED" in str(result))
    print(f"{len(results)} families; failed: {', '.join(failed) or 'none'}")
    if not opt.families and not failed:
        with open(opt.page, "w", encoding="utf-8") as out:
            out.write(page(results))


if __name__ == "__main__":
    main()
