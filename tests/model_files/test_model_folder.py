"""A model as a folder: the same scores to the last bit, and what is read from it is checked."""

import copy
import io
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from commands import SAMPLE, evaluate, own

from polyagents import InputError, Ranker
from polyagents.model_files.building import build_model, settings_of
from polyagents.model_files.model_card import reached, wilson
from polyagents.serving.sources import Sources

CONTEXTS = ["i like red\ndo you like red too ?", "", "where is canada"]
TEXTS = ["so you like red", "canada is in north america", "", "so you like red"]


@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross"])
def test_scores_are_equal_to_the_last_bit(kind, trained, tmp_path):
    ranker = Ranker.load(trained(kind))
    ranker.save_pretrained(tmp_path / "folder")
    again = Ranker.from_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), again.score(CONTEXTS, TEXTS))
    again.save_pretrained(tmp_path / "twice")
    for name in ("config.json", "tokenizer.json", "README.md"):
        assert (tmp_path / "folder" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["poly", "bi"])
def test_models_of_parlais_agents(variant, written, tmp_path):
    ranker = Ranker.load(written(variant))
    ranker.save_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), Ranker.load(tmp_path / "folder").score(CONTEXTS, TEXTS))


@pytest.mark.parametrize("changed", [{"similarity": "cosine"}, {"share_encoders": True}, {"backbone": "of/\udcff"}])
def test_other_models(changed, trained, tmp_path):
    model = Ranker.load(trained("poly")).model
    settings = settings_of("PolyEncoder", {**model.settings.saved, **changed})
    ranker = Ranker(build_model(copy.deepcopy(model.context_encoder), model.tokenizer, settings))
    ranker.save_pretrained(tmp_path / "folder")
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), Ranker.load(tmp_path / "folder").score(CONTEXTS, TEXTS))


def test_a_card_leaves_out_only_shares_that_any_model_has():
    card = reached({"valid": {"exs": 4, "candidates": 20.5, "hits@5": 1.0, "hits@50": 0.75, "hits@100": 1.0}})
    assert re.findall(r"R@\d+", card) == ["R@5", "R@50"]


def test_an_index_belongs_to_the_folder_as_well(trained, replies, tmp_path):
    ranker = Ranker.load(trained("poly"))
    ranker.index(replies, tmp_path / "index")
    ranker.save_pretrained(tmp_path / "folder")
    again = Ranker.from_pretrained(tmp_path / "folder")
    assert again.rank("hi", again.open_index(tmp_path / "index")) == ranker.rank(
        "hi", ranker.open_index(tmp_path / "index")
    )


def test_the_card_says_what_is_known(trained, tmp_path):
    ranker = Ranker.load(trained("poly"))
    ranker.save_pretrained(tmp_path / "folder", license="apache-2.0")
    card = (tmp_path / "folder" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: polyagents\n") and 'license: "apache-2.0"' in card
    left = json.loads(Path(f"{trained('poly')}.trainstats").read_text())
    stats = left["final_test_report"]
    low, high = wilson(stats["hits@1"], stats["exs"])
    assert f"| R@1 | {stats['hits@1']:.3f} ({low:.3f} to {high:.3f}) |" in card
    rows = re.findall(r"^\| (R@\d+|MRR|loss) \|", card, re.MULTILINE)
    assert rows[: len(rows) // 2] == ["R@1", "R@2", "R@5", "R@10", "MRR", "loss"]  # and no R@50 of 20 candidates
    assert f"{stats['exs']} examples, {stats['candidates']:.4g} candidates each (mean):" in card
    for said in ("poly-encoder", "`--learningrate` | `0.001`", "64 tokens", f"Trained on {left['machine']}."):
        assert said in card
    example = card.split("```python\n")[1].split("```")[0].replace("THIS FOLDER OR ITS NAME", str(tmp_path / "folder"))
    (tmp_path / "replies.txt").write_text("yes\nno\n")
    exec(example.replace('"replies', f'"{tmp_path}/replies'))


def test_wilsons_interval_as_scipy_has_it():
    from scipy import stats

    for count, of in ((0, 5), (5, 5), (3, 8), (512, 1000)):
        expected = stats.binomtest(count, of).proportion_ci(0.95, method="wilson")
        assert wilson(count / of, of) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_no_path_of_this_machine_is_given_away(trained, tmp_path):
    ranker = Ranker.load(trained("bi"))
    ranker.model.settings.saved["backbone"] = str(tmp_path)
    ranker.save_pretrained(tmp_path / "folder")
    for name in ("config.json", "README.md", "tokenizer_config.json"):
        content = (tmp_path / "folder" / name).read_text()
        assert str(tmp_path.parent) not in content and trained("bi") not in content


def test_a_card_that_somebody_wrote_stays(trained, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    Ranker.load(trained("bi")).save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert Ranker.load(tmp_path).model.architecture == "BiEncoder"


@pytest.mark.parametrize("said", ["config.json cannot be read"])
def test_a_folder_that_is_no_model(said, tmp_path, ends_with_2):
    with pytest.raises(InputError, match=said):
        Ranker.from_pretrained(tmp_path)
    (line,) = ends_with_2("rank", "-mf", tmp_path, "--candidates-file", "x")
    assert said in line


def test_a_folder_whose_options_do_not_say_what_it_computes_is_refused(trained, tmp_path):
    Ranker.load(trained("bi")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("backbone", "text_truncate", "similarity"):
        options = {key: value for key, value in config["options"].items() if key != name}
        (tmp_path / "config.json").write_text(json.dumps(config | {"options": options}))
        with pytest.raises(InputError, match=f"config.json is damaged: it has no {name}"):
            Ranker.load(tmp_path)


def test_missing_weights_are_not_called_damaged(trained, tmp_path):
    Ranker.load(trained("bi")).save_pretrained(tmp_path / "folder")
    os.remove(tmp_path / "folder" / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read \(No such file or directory\)"):
        Ranker.load(tmp_path / "folder")


@pytest.mark.slow
def test_commands_take_a_folder(trained, replies, tmp_path, monkeypatch, capsys):
    Ranker.load(trained("bi")).save_pretrained(tmp_path / "folder")
    own("build_index", "-mf", tmp_path / "folder", "--candidates-file", replies, "--index-dir", tmp_path / "index")
    capsys.readouterr()
    said = []
    for file in (trained("bi"), tmp_path / "folder"):
        monkeypatch.setattr("sys.stdin", io.StringIO("hi\n"))
        own("rank", "-mf", file, "--index-dir", tmp_path / "index")
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != ""
    assert Sources(str(tmp_path / "folder"), index_dir=str(tmp_path / "index")).read().kind == "bi-encoder"


def hits(file):
    """What an evaluation by ParlAI's command reaches."""
    report = evaluate(file, "-t", SAMPLE, "--num-examples", "8")
    return {name: value for name, value in report.items() if name.startswith(("hits", "mrr", "loss", "exs"))}


@pytest.mark.slow
def test_parlais_commands_say_how_to_make_a_model_file(trained, tmp_path, ends_with_2, chat):
    Ranker.load(trained("bi")).save_pretrained(tmp_path / "folder")
    (line,) = ends_with_2("interactive", "-mf", tmp_path / "folder")
    assert f"convert_weights -mf {tmp_path / 'folder'} --to model-file" in line
    own("convert_weights", "-mf", tmp_path / "folder", "--to", "model-file", "--out", tmp_path / "M")
    ranker = Ranker.load(trained("bi"))
    assert np.array_equal(Ranker.load(tmp_path / "M").score(CONTEXTS, TEXTS), ranker.score(CONTEXTS, TEXTS))
    assert hits(tmp_path / "M") == hits(trained("bi"))
