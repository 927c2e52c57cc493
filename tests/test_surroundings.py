"""Whatever a caller has set for torch and transformers: our calls compute the same, and leave it as it is."""

import contextlib
import csv
import importlib
import logging
import os
import random
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from transformers.initialization import TORCH_INIT_FUNCTIONS
from transformers.utils import logging as transformers_logging

from polyagents import InputError, Ranker

hub_bars = importlib.import_module("huggingface_hub.utils.tqdm")  # whose package hides it behind a class

REPLIES = ["hello", "i have two dogs and a cat", "canada is in north america", "no"]
CONTEXTS = ["do you have a dog ?", "hi\nwhere is canada"]
EXAMPLES = [{"context": f"what is {n} ?", "label": f"it is {n}"} for n in ("red", "blue", "green", "grey")]


@contextlib.contextmanager
def after(change, undo):
    change()
    try:
        yield
    finally:
        undo()


def default_dtype(dtype):
    return after(lambda: torch.set_default_dtype(dtype), lambda: torch.set_default_dtype(torch.float32))


@contextlib.contextmanager
def own_messages():
    """Bars of transformers and of a group of the hub's are off, it tells everything, and warnings are errors."""
    states = dict(hub_bars.progress_bar_states)
    transformers_logging.disable_progress_bar()
    hub_bars.disable_progress_bars("some.group")
    transformers_logging.set_verbosity_debug()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        transformers_logging.set_verbosity_warning()
        transformers_logging.enable_progress_bar()
        hub_bars.progress_bar_states.clear()
        hub_bars.progress_bar_states.update(states)


@contextlib.contextmanager
def several(*contexts):
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


CIRCUMSTANCES = {
    "float64, inference": lambda: several(default_dtype(torch.float64), torch.inference_mode()),
    "all others": lambda: several(
        default_dtype(torch.bfloat16),
        after(lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
        torch.autocast("cpu", torch.bfloat16),
        torch.no_grad(),
        own_messages(),
    ),
}


def surroundings():
    """All that a library could change for others."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads()),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "draws": (torch.get_rng_state().tolist(), random.getstate(), kind, keys.tolist(), rest),
        "initialisers": [getattr(torch.nn.init, name) for name in TORCH_INIT_FUNCTIONS],
        "made by torch": (torch.linspace, torch.nn.Linear.reset_parameters, torch.nn.functional.dropout),
        "models": (transformers.PreTrainedModel.init_weights, transformers.PreTrainedModel.tie_weights),
        "levels": [logging.getLogger(name).level for name in (None, "transformers", "huggingface_hub", "py.warnings")],
        "bars": (transformers_logging.is_progress_bar_enabled(), dict(hub_bars.progress_bar_states)),
        "warnings": list(warnings.filters),
        "rest": (dict(os.environ), csv.field_size_limit(), os.getcwd(), sys.getrecursionlimit()),
    }


def numbers_of(matches):
    return np.array([(match.index, match.score) for match in matches])


def everything(file, folder, name):
    """What each call returns, in numbers."""
    ranker = Ranker.load(file)
    found = [ranker.score(CONTEXTS, REPLIES), numbers_of(ranker.rank(CONTEXTS[0], REPLIES))]
    found.append(numbers_of(ranker.rank(CONTEXTS[0], ranker.prepare(REPLIES))))
    found.append(numbers_of(ranker.rerank(CONTEXTS[1], ranker.rank(CONTEXTS[0], REPLIES, top_k=3))))
    ranker.save(folder / name)
    found.append(Ranker.load(folder / name).to("cpu").score(CONTEXTS, REPLIES))
    ranker.save_pretrained(folder / f"{name}.folder")
    found.append(Ranker.from_pretrained(folder / f"{name}.folder").score(CONTEXTS, REPLIES))
    if hasattr(ranker.model, "encode_texts"):
        contexts, candidates = ranker.encode_contexts(CONTEXTS), ranker.encode_candidates(REPLIES)
        found += [contexts.vectors.numpy(), candidates.numpy(), ranker.score(contexts, candidates)]
        (folder / f"{name}.txt").write_text("\n".join(REPLIES))
        index = ranker.index(folder / f"{name}.txt", folder / f"{name}.index", "int8")
        index = ranker.append(index, ["bye", "see you"])
        found.append(numbers_of(ranker.rank(CONTEXTS[0], ranker.open_index(index.folder, exact=True))))
        ranker.approximate(index, "hnsw")
        found.append(numbers_of(ranker.search(CONTEXTS, index, 3)[0][0]))
    assert all(weight.dtype == torch.float32 for weight in ranker.model.module.parameters())
    return found


def loaded_scores(file):
    return Ranker.load(file).score(CONTEXTS, REPLIES)


def learned(folder, name, **options):
    """The weights after two updates with a validation, in memory and in the file."""
    given = {"backbone": "scratch:tiny", "batchsize": 4, "poly_n_codes": 4, "max_train_steps": 2, "progress": False}
    ranker = Ranker.train(EXAMPLES, valid=EXAMPLES[:2], learningrate=1e-3, **given | options)
    ranker.save(folder / name)
    weights = {place: weight.clone() for place, weight in ranker.model.module.state_dict().items()}
    for place, weight in Ranker.load(folder / name).model.module.state_dict().items():
        assert torch.equal(weight, weights[place]) and weight.dtype in (torch.float32, torch.int64)
    return weights


@pytest.fixture(scope="module")
def plain(trained, tmp_path_factory):
    """What all calls return where nothing is set, by kind."""
    kept = {}

    def of(kind):
        if kind not in kept:
            kept[kind] = everything(trained(kind), tmp_path_factory.mktemp(kind), "M")
        return kept[kind]

    return of


@pytest.mark.slow
@pytest.mark.parametrize("circumstance", CIRCUMSTANCES)
def test_calls_compute_the_same_and_change_nothing(circumstance, plain, trained, tmp_path):
    for kind in ("poly", "uni", "cross"):
        expected = plain(kind)
        with CIRCUMSTANCES[circumstance]():
            before = surroundings()
            found = everything(trained(kind), tmp_path, kind)
            changed = {name for name, value in surroundings().items() if value != before[name]}
        assert not changed, kind
        for ours, right in zip(found, expected, strict=True):
            assert ours.dtype == right.dtype, kind
            np.testing.assert_array_equal(ours, right, err_msg=kind)


@pytest.mark.slow
def test_a_training_learns_the_same_and_changes_nothing(tmp_path):
    weights = learned(tmp_path, "plain", precision="bf16")
    with CIRCUMSTANCES["all others"]():
        before = surroundings()
        found = learned(tmp_path, "M", precision="bf16")
        changed = {name for name, value in surroundings().items() if value != before[name]}
    assert not changed
    for name, right in weights.items():
        assert torch.equal(found[name], right), name


@pytest.mark.slow
def test_threads_that_load_at_once_get_right_models_and_disturb_nobody(plain, trained):
    """Two threads that load and rank, and one that builds modules of its own meanwhile."""
    rights, before, done, wrong = {kind: plain(kind) for kind in ("poly", "cross")}, surroundings(), [], []

    def build():
        while not done:
            layer, norm = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)
            if not (norm.weight == 1).all() or not 0.05 < layer.weight.std() < 0.1:
                wrong.append(layer)

    building = threading.Thread(target=build)
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    building.start()
    try:
        with ThreadPoolExecutor(2) as pool:
            for _ in range(6):
                running = {kind: pool.submit(loaded_scores, trained(kind)) for kind in rights}
                for kind, work in running.items():
                    np.testing.assert_allclose(work.result(), rights[kind][0], rtol=1e-4, atol=1e-4)
    finally:
        done.append(True)
        building.join()
        sys.setswitchinterval(switch)
    after_all = surroundings()
    assert not wrong and not {name for name in before if name != "draws" and before[name] != after_all[name]}


def test_a_training_in_inference_mode_is_refused_before_it_begins(tmp_path):
    with torch.inference_mode(), pytest.raises(InputError, match="inference_mode"):
        learned(tmp_path, "M")
    assert not os.listdir(tmp_path)
