"""Joined chunks are the same examples with the same hidden words, in fewer and larger batches."""

import pytest
import torch
from test_pretrain import PAIRS, bert, make  # noqa: F401  a fixture

from polyagents.pretraining import planning
from polyagents.pretraining.joining import joined_chunks
from polyagents.pretraining.pretrain_model import LABELS, WORDS


def prepared(agent, objectives, number=0):
    update = next(one for one in agent.plan(PAIRS, window=0)[number:] if one.objectives == objectives)
    return [agent.prepared(chunk, objectives, torch.Generator().manual_seed(5)) for chunk in update.chunks]


def examples(chunks):
    """Ids, hidden places and targets of every text, without padding and in no order."""
    rows = []
    for tokens, targets, hidden in chunks:
        words = targets.get(WORDS, torch.zeros(0, dtype=torch.long)).tolist()
        for row, mask in enumerate(tokens.mask):
            places = [] if hidden is None else hidden[row][mask].tolist()
            guessed, words = words[: sum(places)], words[sum(places) :]
            label = int(targets[LABELS][row]) if LABELS in targets else None
            rows.append((tokens.ids[row][mask].tolist(), tokens.places[row][mask].tolist(), places, guessed, label))
        assert not words and not (~tokens.mask & (tokens.places != -1)).any()
    return sorted(rows, key=str)


@pytest.mark.parametrize("objectives", [(WORDS,), (LABELS,)])
@pytest.mark.parametrize("limit", [1, 100, 150, 10_000])
def test_nothing_is_lost_and_nothing_is_larger_than_the_limit(bert, objectives, limit):  # noqa: F811
    agent = make(bert, "--batch-tokens", "400", "--chunk-tokens", "50")
    chunks = prepared(agent, objectives)
    together = list(joined_chunks(chunks, limit, agent.dict.ready.pad_id))
    assert examples(together) == examples(chunks)
    assert all((~tokens.mask == (tokens.ids == agent.dict.ready.pad_id)).all() for tokens, _, _ in together)
    assert len(together) == (len(chunks) if limit == 1 else 1 if limit == 10_000 else len(together)) and len(chunks) > 3
    if limit > 50:
        assert all(tokens.ids.numel() <= limit for tokens, _, _ in together)


def test_the_plan_is_the_same_on_every_device_and_so_is_the_update(bert, monkeypatch):  # noqa: F811
    """What a GPU would do, on a CPU: larger chunks, the same gradient."""
    here, there = (make(bert, "--batch-tokens", "4000", "--gradient-clip", "-1") for _ in range(2))
    plan = here.plan(PAIRS * 6, window=0)
    assert plan == there.plan(PAIRS * 6, window=0)
    join = planning.joined_chunks
    sizes = []

    def larger(chunks):
        made = list(join(chunks, planning.GPU_CHUNK_TOKENS, there.dict.ready.pad_id))
        sizes.append((len(chunks), len(made)))
        return iter(made)

    monkeypatch.setattr(there, "on_device", larger)
    update = max(plan, key=lambda update: len(update.chunks))
    for agent in (here, there):
        agent.train_update(update, 0)
    assert sizes[0][0] > sizes[0][1] == 1
    for (name, weight), (_, other) in zip(here.model.named_parameters(), there.model.named_parameters(), strict=True):
        if weight.grad is not None:
            torch.testing.assert_close(weight.grad, other.grad, rtol=1e-3, atol=1e-5, msg=name)
    (first, second) = (agent.report() for agent in (here, there))
    assert float(first["loss"]) == pytest.approx(float(second["loss"]), rel=1e-4)
    assert float(first["padding"]) == float(second["padding"])
