"""The README.md of a model folder: a description of the model, its usage, its results, and its limits."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from polyagents.console import number_of
from polyagents.models.architecture import options_with
from polyagents.options import Role
from polyagents.ranking.ranking_model import RankingModel
from polyagents.timings import machine

NORMAL_95 = 1.959964  # standard deviations to either side that hold 95 % of a normal distribution
AVERAGED = "averaged"  # among the options of a mean of models (averaging.py): of how many
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

USE = {
    True: """candidates = ["i am here", "canada is in north america"]
ranker.rank("where is canada", candidates, top_k=1)
index = ranker.index("replies.txt", "replies.index")  # a file of many candidates, encoded once
ranker.rank("where is canada", index)""",
    False: """candidates = ["i am here", "canada is in north america"]
ranker.rank("where is canada", candidates, top_k=1)  # reads each candidate with the context: re-rank some tens""",
}


def model_card(model: RankingModel, config: Mapping[str, Any], license: str | None) -> str:
    """Write the card of a model, as Markdown with the metadata that model hubs read.

    Args:
        config: the content of config.json, the fields of model_folder.FolderConfig.
        license: such as "mit"; None if nobody has decided.
    """
    options = config["options"]
    name = f"A {model.label} that ranks replies and passages"
    sections = [
        ("", description(model, options)),
        ("Usage", use(model)),
        ("Results", reached(config["results"])),
        ("Training", flags(config["training"])),
        ("Machine", machines(config["machine"])),
        ("Licence", licence(license)),
        ("Limits", limits_section(model)),
    ]
    body = "\n\n".join(f"## {title}\n\n{text}" if title else text for title, text in sections)
    return f"{metadata(model, options, license)}\n# {name}\n\n{body}\n"


def metadata(model: RankingModel, options: Mapping[str, Any], license: str | None) -> str:
    """Write the YAML at the head of a card, with the lines that enclose it; JSON strings are valid YAML."""
    lines = ["---", "library_name: polyagents", "pipeline_tag: text-ranking"]
    if license is not None:
        lines.append(f"license: {json.dumps(license)}")
    if HUB_NAME.fullmatch(str(options["backbone"])):
        lines.append(f"base_model: {json.dumps(options['backbone'])}")
    return "\n".join([*lines, "tags:", "- polyagents", f"- {json.dumps(model.label)}", "---"]) + "\n"


def description(model: RankingModel, options: Mapping[str, Any]) -> str:
    """Describe the model: architecture, encoder, size, lengths."""
    config = model.context_encoder.backbone.config
    weights = {id(weight): weight.numel() for weight in model.module.parameters()}
    rows = {
        "architecture": f"{model.label} (`{model.architecture}`)",
        "encoder": f"`{options['backbone']}` ({config.model_type}), "
        f"{getattr(config, 'num_hidden_layers', '?')} layers, width {model.context_encoder.width}",
        "parameters": f"{sum(weights.values()):,}",
        "context": f"{tokens(model.settings.text_truncate)}, the end is kept",
        "candidate": f"{tokens(model.settings.label_truncate)}, the beginning is kept",
    }
    shown = options_with(model.architecture, Role.CARD)
    rows |= {f"`--{name.replace('_', '-')}`": f"`{options[name]}`" for name in shown}
    return "It was made with polyagents (Humeau et al., arXiv 1905.01969).\n\n" + card_table(("", ""), rows)


def tokens(limit: int | None) -> str:
    """Write a maximal length in words."""
    return "any length" if limit is None else f"{limit} tokens"


def use(model: RankingModel) -> str:
    """Write the section on loading and usage."""
    example = USE[model.encodes_candidates]
    return (
        f'```python\nfrom polyagents import Ranker\n\nranker = Ranker.from_pretrained("THIS FOLDER OR ITS NAME")\n'
        f"{example}\n```\n\nA context is one string; it has one turn per line, the oldest first."
    )


def reached(results: Mapping[str, Mapping[str, float]]) -> str:
    """Write the results, with the 95 % interval of each share (hits@k) if the number of examples is known."""
    if not results:
        return "The model has no evaluation; measure it before you rely on it."
    parts = []
    for split, report in results.items():
        examples, candidates = report.get("exs", 0), report.get("candidates")
        shares = {int(found[1]): report[name] for name in report if (found := re.fullmatch(r"hits@(\d{1,9})", name))}
        rows = {
            f"R@{k}": rounded(shares[k], examples)
            for k in sorted(shares)
            # R@20 of 20 candidates is 1 for any model; some lists may be longer than the mean.
            if candidates is None or k < candidates or shares[k] < 1
        }
        others = {"mrr": "MRR", "loss": "loss"}
        rows |= {others[name]: rounded(report[name], 0) for name in others if name in report}
        table = card_table(("metric", "value (95 % interval)"), rows)
        among = "" if candidates is None else f", {candidates:.4g} candidates each (mean)"
        parts.append(f"{split}, {number_of(round(examples), 'example')}{among}:\n\n{table}")
    return "\n\n".join(parts) + "\n\nThe intervals are Wilson's; they take the examples as independent."


def rounded(value: float, examples: float) -> str:
    """Format a number, with its interval if it is a share of `examples`; they are 0 otherwise."""
    if examples < 1 or not 0 <= value <= 1:
        return f"{value:.4g}"
    low, high = wilson(value, examples)
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def wilson(share: float, of: float) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share, 0 to 1; human_eval has it with scipy, which the core does without."""
    z = NORMAL_95
    middle = share + z * z / (2 * of)
    spread = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max((middle - spread) / (1 + z * z / of), 0.0), min((middle + spread) / (1 + z * z / of), 1.0)


def flags(training: Mapping[str, Any]) -> str:
    """Write the flags of the training."""
    if not training:
        return "Its files do not say."
    given = {name: value for name, value in training.items() if name != AVERAGED}
    rows = {f"`--{name.replace('_', '-')}`": f"`{json.dumps(value)}`" for name, value in given.items()}
    count = training.get(AVERAGED)
    mean = f"The weights are the mean of {count} models; the flags are the first model's.\n\n" if count else ""
    return mean + card_table(("flag", "value"), rows)


def machines(trained_on: str | None) -> str:
    """Write the machine that trained the model, and the version that wrote the card."""
    training = f"Trained on {trained_on}." if trained_on else "Its files do not say what it was trained on."
    return f"{training} This folder was written on {machine()}."


def licence(license: str | None) -> str:
    """Write the licence, if known."""
    if license is not None:
        return f"`{license}`. The licences of the encoder that it started from, and of the training data, apply too."
    return "Whoever publishes this model must choose one; the licences of its encoder and of its training data apply."


def limits_section(model: RankingModel) -> str:
    """Write the limits of the model."""
    score = "cosines" if model.similarity == "cosine" else "unbounded numbers"
    return (
        f"- It orders given candidates and writes nothing; the best of bad candidates is still first.\n"
        f"- Scores are {score}, comparable for one context and not between contexts; they are not probabilities.\n"
        f"- Texts longer than the lengths above are cut off silently.\n"
        f"- It knows the language and the kind of text that it was trained on, with their biases."
    )


def card_table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Write rows of two cells as a Markdown table; characters that would break it are replaced."""
    lines = [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    cells = ((cell.replace("\n", " ").replace("|", "\\|") for cell in row) for row in rows.items())
    lines += ["| {} | {} |".format(*row) for row in cells]
    return "\n".join(lines)
