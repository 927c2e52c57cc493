"""Models that are written: what a full disk leaves."""

import pytest
from commands import own

from polyagents import InputError, Ranker
from polyagents.files import tensors

WAYS = {
    "Ranker.save": lambda source, out: Ranker.load(source).save(out),
    "Ranker.save_pretrained": lambda source, out: Ranker.load(source).save_pretrained(out),
    "init_model": lambda source, out: own("init_model", "--average", source, source, "-mf", out),
    "convert_weights": lambda source, out: own("convert_weights", "-mf", source, "--to", "model-file", "--out", out),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_full_disk_leaves_nothing_that_is_in_the_way_of_the_next_try(way, trained, tmp_path, monkeypatch):
    source, out = trained("bi"), tmp_path / "M"

    def full(*given):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(InputError) as refused:
        patch.setattr(tensors, "save_file", full)
        WAYS[way](source, out)
    assert str(refused.value).startswith(str(out)) and ".tmp" not in str(refused.value)
    assert not list(tmp_path.iterdir())
    WAYS[way](source, out)
    assert Ranker.load(out).model.architecture == "BiEncoder"


def test_parts_that_were_there_stay_when_a_model_cannot_be_written(trained, tmp_path, monkeypatch):
    ranker = Ranker.load(trained("bi"))
    ranker.save(tmp_path / "M")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(tensors, "save_file", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ranker.save(tmp_path / "M")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
