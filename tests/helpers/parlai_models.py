"""Small models that ParlAI's own agents train and write, with the flags of the paper's recipes."""

import numpy as np
from commands import SAMPLE, options, run
from parlai.core.agents import create_agent_from_model_file

AGENTS = {
    "bi": "transformer/biencoder",
    "poly": "transformer/polyencoder",
    "cross": "transformer/crossencoder",
}
RECIPE = (
    *("--variant", "xlm", "--activation", "gelu", "--embeddings-scale", "false", "--share-encoders", "false"),
    *("--learn-positional-embeddings", "true", "--n-segments", "2", "--dict-tokenizer", "bpe", "--dict-lower", "true"),
    *("--dict-endtoken", "__start__", "--history-size", "20", "--optimizer", "adamax", "--dropout", "0.1"),
)
TINY = (
    *("--n-layers", "2", "--n-heads", "2", "--embedding-size", "16", "--ffn-size", "24", "--n-positions", "64"),
    *("--text-truncate", "40", "--label-truncate", "12", "--dict-maxtokens", "300", "--output-scaling", "0.5"),
    *("--batchsize", "8", "-lr", "1e-2", "--max-train-steps", "6", "--validation-every-n-epochs", "-1"),
    *("--validation-max-exs", "8", "--short-final-eval", "true"),
)
VARIANTS = {
    "poly": ("--candidates", "batch", "--reduction-type", "mean", "--poly-n-codes", "4"),
    "poly first": (
        *("--candidates", "batch", "--reduction-type", "first", "--polyencoder-type", "n_first"),
        *("--poly-n-codes", "5", "--poly-attention-type", "sqrt"),
    ),
    "bi": ("--candidates", "batch", "--reduction-type", "mean", "--share-word-embeddings", "false"),
    "bi first": ("--candidates", "batch", "--reduction-type", "first", "--activation", "relu", "--n-segments", "0"),
    "cross": ("--candidates", "inline", "--reduction-type", "first", "--batchsize", "2"),
    "cross mean": ("--candidates", "inline", "--reduction-type", "mean", "--batchsize", "2"),
}


def train(variant, model_file, *flags):
    """ParlAI's own training of a variant."""
    agent = AGENTS[variant.split()[0]]
    run("train_model", "-m", agent, "-mf", model_file, "-t", SAMPLE, *RECIPE, *TINY, *VARIANTS[variant], *flags)


def scores(model_file, contexts, candidates):
    """What ParlAI's own agent says: [contexts, candidates]."""
    wanted = {"model": options(model_file)["model"]}  # which a file alone does not decide
    wanted |= {"eval_candidates": "inline", "return_cand_scores": True, "no_cuda": True, "datatype": "test"}
    agent = create_agent_from_model_file(str(model_file), wanted | {"rank_top_k": -1, "cap_num_predictions": 1_000})
    rows = []
    for context in contexts:
        agent.reset()
        agent.observe({"text": context, "label_candidates": list(candidates), "episode_done": True})
        reply = agent.act()
        found = dict(zip(reply["text_candidates"], reply["sorted_scores"], strict=True))
        rows.append([float(found[candidate]) for candidate in candidates])
    return np.array(rows)
