"""The candidates of a batch of an evaluation or a chat, by the source in `--eval-candidates`.

The candidates of a training batch are in training/candidates.py.
"""

from parlai.core.opt import Opt
from parlai.utils.misc import warn_once

from polyagents.errors import InputError
from polyagents.ranking.candidate_set import CandidateSet, inline_set, shared_set
from polyagents.training.candidates import given_candidates
from polyagents.training.examples import Examples


def evaluation_candidates(opt: Opt, source: str, examples: Examples) -> CandidateSet:
    """Return the candidates of a batch of an evaluation or a chat; ParlAI's `_build_candidates` explains the sources.

    Args:
        opt: the agent's options, for error messages.
        examples: B of them.

    Raises:
        InputError: the examples lack what the source needs.
    """
    labels = examples.labels if examples.labelled else None
    if source == "batch":
        if labels is None:
            raise InputError("Candidate source 'batch' ranks the batch's labels, and these examples have none.")
        return shared_set((), labels)
    if labels is not None and source == "inline" and examples.without_own:
        warn_once(f"{origin(opt)} has examples without candidates: they rank the labels of their batch.")
    if labels is not None and examples.given is None:
        # The default source of an evaluation; a training run must not end at its first validation.
        return shared_set((), labels)
    flag = "interactive-candidates" if opt.get("interactive_mode") else "eval-candidates"
    given = given_candidates(flag, source, examples, origin(opt))
    if source == "batch-all-cands":
        return shared_set([candidate for own in given for candidate in own], labels)
    return inline_set(examples.lists, labels)


def origin(opt: Opt) -> str:
    """Describe where an agent's examples come from, for messages."""
    return f"--task {opt.get('task')}"
