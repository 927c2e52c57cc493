"""The names of all commands, ours and ParlAI's, in tables, so that nothing is imported to list them."""

from dataclasses import dataclass

from polyagents.console import in_columns


@dataclass(frozen=True)
class OwnCommand:
    """A command of ours; the module of its name has `parser() -> ArgumentParser` and `run(opt: Mapping[str, Any])`."""

    summary: str
    extra: str | None = None  # the extra of setup.py that it needs; None if the core is enough
    computes: bool = False  # whether it trains, builds or serves for long: its threads are worth a line in the log
    loads_models: bool = False  # whether it first imports torch and transformers, which takes seconds


@dataclass(frozen=True)
class ParlaiCommand:
    """A command of ParlAI 1.7.2."""

    summary: str
    aliases: tuple[str, ...] = ()
    hidden: bool = False  # ParlAI shows it only in `helpall`
    takes_a_model: bool = True  # whether it has the flag `--model`
    script: str | None = None  # the module in parlai.scripts; None if it is called as the command is
    instead: str | None = None  # our command that does it for models of ours, if this one cannot read them


OWN_COMMANDS = {
    "bench_inference": OwnCommand(
        "Measure speed and memory against peers, in one run", "dev", computes=True, loads_models=True
    ),
    "bench_training": OwnCommand("Measure training speed and memory against peers, in one run", "dev", computes=True),
    "build_index": OwnCommand(
        "Encode candidates into an index, which rank --index-dir searches", computes=True, loads_models=True
    ),
    "build_pairs": OwnCommand("Make pairs of a context and the text that came next, to pre-train on", "data"),
    "build_vocabulary": OwnCommand("Learn a BPE vocabulary from a task or from text files"),
    "build_wiki_search": OwnCommand("Make the data of the Wikipedia article search from a dump", "data"),
    "calibrate": OwnCommand(
        "Fit the probabilities of decide to held-out examples", "parlai", computes=True, loads_models=True
    ),
    "check_data": OwnCommand("Show the contents of your own table of examples, and warn of problems"),
    "convert_weights": OwnCommand("Write a model as a Hugging Face folder or as ParlAI's own", loads_models=True),
    "decide": OwnCommand(
        "Choose one of your options, or none, with its probability; JSON lines out", loads_models=True
    ),
    "demo": OwnCommand(
        "Train bi, poly, uni and cross on a built-in task and compare them", "dev", computes=True, loads_models=True
    ),
    "evaluate": OwnCommand(
        "Measure R@k, MRR, nDCG@k and MAP with intervals; compare models; TREC files",
        "parlai",
        computes=True,
        loads_models=True,
    ),
    "export": OwnCommand(
        "Export a model's encoders to ONNX Runtime or OpenVINO, which compute them faster on CPUs", loads_models=True
    ),
    "human_eval": OwnCommand("Evaluate models by people's preferences, step by step", "human-eval"),
    "index": OwnCommand(
        "Build, change or show an index of candidates, in a folder or a vector database",
        computes=True,
        loads_models=True,
    ),
    "init_model": OwnCommand(
        "Make a ranker without training: of an encoder as it is, or the mean of several models", loads_models=True
    ),
    "mine_negatives": OwnCommand(
        "Write a training set with the candidates that a model finds hard", "parlai", computes=True, loads_models=True
    ),
    "rank": OwnCommand("Rank candidates for contexts on standard input; JSON lines out", loads_models=True),
    "recipe": OwnCommand("List, show or run the recipes of the paper's numbers", "parlai"),
    "serve": OwnCommand("A chat page for one model, and JSON endpoints", "serve", computes=True),
    "tune": OwnCommand(
        "Measure which runtime computes a model fastest here, for --backend auto", computes=True, loads_models=True
    ),
    "zoo": OwnCommand("List, show or download ParlAI's pretrained rankers"),
}

PARLAI_COMMANDS = {
    "build_candidates": ParlaiCommand("Build the candidate responses for a retrieval model", (), True, False),
    "build_dict": ParlaiCommand("Build a dictionary", (), True),
    "convert_to_json": ParlaiCommand("Convert data to JSON", (), True, script="convert_data_to_json_format"),
    "convert_to_parlai": ParlaiCommand(
        "Dump a task in ParlAI's text format", (), True, False, "convert_data_to_parlai_format"
    ),
    "convo_render": ParlaiCommand("Render data as HTML", (), True, False),
    "data_stats": ParlaiCommand("Compute data statistics", (), True, False),
    "detect_offensive": ParlaiCommand(
        "Check a task for offensive language", (), True, script="detect_offensive_language"
    ),
    "display_data": ParlaiCommand("Display data from a task", ("dd",)),
    "display_model": ParlaiCommand("Display a model's predictions", ("dm",)),
    "eval_model": ParlaiCommand("Evaluate a model", ("em", "eval")),
    "eval_wordstat": ParlaiCommand("Compute statistics from a model's predictions", (), True),
    "extract_image_feature": ParlaiCommand("Load or extract image features", (), True, False),
    "flask": ParlaiCommand("Serve a model through Flask", (), True),
    "generate_model_card": ParlaiCommand("Write a model card", ("gmc",)),
    "interactive": ParlaiCommand("Chat with a model on the command line", ("i",)),
    "interactive_web": ParlaiCommand("Chat with a model in a web browser", ("iweb",), True),
    "multiprocessing_eval": ParlaiCommand("Evaluate a model in several processes", ("mp_eval",), True),
    "multiprocessing_train": ParlaiCommand("Train a model in several processes", ("mp_train",), True),
    "party": ParlaiCommand("Throw a party", ("parrot",), True, False),
    "profile_interactive": ParlaiCommand("Profile a chat with a model", (), True),
    "profile_train": ParlaiCommand("Profile a training run", (), True),
    "safe_interactive": ParlaiCommand("Like interactive, with a filter for safety"),
    "self_chat": ParlaiCommand("Let a model chat with itself"),
    "tod_world_script": ParlaiCommand("Chat about a task, in ParlAI's structure for such dialogues", (), False, False),
    "token_stats": ParlaiCommand("Compute statistics of tokens", (), True),
    "torchscript": ParlaiCommand(
        "Export a generative model of ParlAI's to TorchScript (a ranker of ours: export)",
        (),
        True,
        instead="export -mf {file} --to onnx|openvino, which writes its encoders for another runtime",
    ),
    "train_model": ParlaiCommand("Train a model", ("tm", "train")),
    "vacuum": ParlaiCommand(
        "Shrink a model file of ParlAI's own agents for release (one of ours: convert_weights)",
        (),
        True,
        False,
        instead="convert_weights -mf {file} --to model-file --out NEW, which writes it without an optimiser's state",
    ),
    "verify_data": ParlaiCommand("Check tasks for common errors", (), True),
}

# What -m names, by the words of the command line.
AGENTS = {
    "bi": "Bi-encoder: a context and a candidate are a vector each; the fastest",
    "poly": "Poly-encoder: a candidate attends to several vectors of the context; nearly as fast, and better",
    "uni": "Uni-encoder: reads a context once, followed by all of its candidates",
    "cross": "Cross-encoder: reads a context with each candidate; the slowest",
}

TRAIN_COMMANDS = ("train_model", "multiprocessing_train")

# ParlAI's commands by name and by alias.
BY_EVERY_NAME = {alias: name for name, command in PARLAI_COMMANDS.items() for alias in (name, *command.aliases)}


def listing(with_hidden: bool) -> str:
    """List all commands, one line each; ParlAI's rarer ones only on request."""
    ours = [(f"  {name}", command.summary) for name, command in OWN_COMMANDS.items()]
    theirs = [
        (f"  {', '.join((name, *command.aliases))}", command.summary)
        for name, command in PARLAI_COMMANDS.items()
        if with_hidden or not command.hidden
    ]
    lines = in_columns([*ours, *theirs])
    return "\n".join(
        [
            "usage: polyagents COMMAND [flags]",
            "",
            "Our commands:",
            *lines[: len(ours)],
            "",
            "ParlAI's commands:",
            *lines[len(ours) :],
            "",
            "They take our agents as -m:",
            *in_columns([(f"  -m {name}", summary) for name, summary in AGENTS.items()]),
            "",
            "Flags of a command: polyagents COMMAND --help",
            "Our version, and ParlAI's and torch's: polyagents --version",
            *([] if with_hidden else ["ParlAI's other commands: polyagents helpall"]),
        ]
    )
