"""The mean of several models, beside a loop over their files, and what cannot be averaged."""

import itertools
import json

import backbones
import pytest
import torch
from commands import own
from transformers import BertConfig, BertModel, set_seed

from polyagents import InputError, Ranker
from polyagents.files import model_file

PAIRS = [{"context": one, "label": two} for one, two in itertools.pairwise(backbones.SENTENCES)]


def train(file, backbone, **options):
    more = {"max_train_steps": 1, "learningrate": 1e-3, "progress": False} | options
    return Ranker.train(PAIRS, file, more.pop("model", "bi"), backbone=backbone, **more)


def other_weights(start, file, seed):
    """Write a model whose weights are those of another one with noise."""
    ranker, draw = Ranker.load(start), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in ranker.model.module.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=draw)
    ranker.save(file)
    return str(file)


@pytest.fixture(scope="module")
def start(trained, backbone, tmp_path_factory):
    """A model file by kind."""

    def of(kind):
        if kind in ("bi", "poly", "uni", "cross"):
            return trained(kind)
        file = tmp_path_factory.mktemp("start") / "M"
        train(file, backbone, **{"shared": {"share_encoders": True}, "lora": {"lora_rank": 2}}[kind])
        return file

    return of


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", "poly", "uni", "cross", "shared"])
def test_each_weight_is_the_mean_and_each_option_the_firsts(kind, start, tmp_path):
    files = [other_weights(start(kind), tmp_path / f"run{seed}", seed) for seed in (1, 2, 3)]
    Ranker.average(files, no_cuda=True).save(tmp_path / "mean")
    stored, found = [model_file.read(file)["model"] for file in files], model_file.read(str(tmp_path / "mean"))["model"]
    assert found.keys() == stored[0].keys()
    for name, weight in found.items():
        expected = sum(weights[name].double() for weights in stored) / 3
        torch.testing.assert_close(weight.double(), expected, atol=1e-6, rtol=1e-6)
    one, mean = (json.loads((tmp_path / f"{name}.opt").read_text()) for name in ("run1", "mean"))
    assert {**one, "dict_file": None, "averaged": 3} == {**mean, "dict_file": None}
    Ranker.load(tmp_path / "mean").save_pretrained(tmp_path / "folder")
    assert "The weights are the mean of 3 models; the flags" in (tmp_path / "folder" / "README.md").read_text()


@pytest.mark.slow
def test_adapters_are_merged_before(start, tmp_path):
    files = [other_weights(start("lora"), tmp_path / f"run{seed}", seed) for seed in (1, 2)]
    merged = [Ranker.load(file).model.merged().module.state_dict() for file in files]
    Ranker.average(files).save(tmp_path / "mean")
    mean = Ranker.load(tmp_path / "mean").model
    assert mean.settings.ranking.lora_rank is None
    for name, weight in mean.module.state_dict().items():
        torch.testing.assert_close(weight, (merged[0][name] + merged[1][name]) / 2)


@pytest.mark.slow
def test_the_command_writes_it_and_overwrites_nothing(start, tmp_path, capsys):
    files = [other_weights(start("bi"), tmp_path / f"run{seed}", seed) for seed in (1, 2)]
    own("init_model", "--average", files[0], "--average", files[1], "-mf", tmp_path / "mean")
    assert f"{tmp_path / 'mean'} is a bi-encoder: polyagents rank" in capsys.readouterr().out
    expected = Ranker.average(files).score("hi", ["hello", "bye"])
    assert Ranker.load(tmp_path / "mean").score("hi", ["hello", "bye"]).tolist() == expected.tolist()
    with pytest.raises(InputError, match="exists, and nothing is overwritten"):
        own("init_model", "--average", *files, "-mf", tmp_path / "mean")
    with pytest.raises(InputError, match="--model bi is for --backbone"):
        own("init_model", "--average", *files, "-mf", tmp_path / "M", "-m", "bi")


def another_bert(folder, layers):
    """Write a BERT with the vocabulary of the first one, and with weights of its own."""
    backbones.save("bert", folder)
    set_seed(1)
    BertModel(BertConfig.from_pretrained(folder, num_hidden_layers=layers)).save_pretrained(folder)
    return str(folder)


OTHERS = {
    "poly-encoder": {"model": "poly"},
    "--similarity": {"similarity": "cosine"},
    "--share-encoders": {"share_encoders": True},
    "--candidate-prompt": {"candidate_prompt": "reply: "},
    "do not come from one start": {"backbone": 2},
    "weights of other sizes": {"backbone": 1},
    "other vocabularies": {"backbone": "scratch:tiny", "reduction_type": "first"},
}


@pytest.mark.slow
@pytest.mark.parametrize(("said", "options"), OTHERS.items(), ids=OTHERS)
def test_models_that_differ_in_more_than_their_weights_are_refused(said, options, backbone, tmp_path):
    if isinstance(layers := options.get("backbone"), int):
        options = {"backbone": another_bert(tmp_path / "other", layers)}
    train(tmp_path / "one", backbone)
    train(tmp_path / "two", **{"backbone": backbone} | options)
    with pytest.raises(InputError, match=said) as refused:
        Ranker.average([tmp_path / "one", tmp_path / "two"])
    assert "\n" not in str(refused.value) and str(tmp_path / "two") in str(refused.value)


@pytest.mark.parametrize("head", ["linear", "tanh", "dot"])
def test_heads_that_each_run_draws_have_no_mean_and_those_that_start_at_0_do(head, backbone, tmp_path):
    files = [tmp_path / "one", tmp_path / "two"]
    for seed, file in enumerate(files):
        train(file, backbone, model="cross", joint_head=head, seed=seed)
    if head == "dot":
        Ranker.average(files)
        return
    with pytest.raises(InputError, match=r"do not come from one start.*(linear|dense).*the same --init-model"):
        Ranker.average(files)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "needs two models or more, and there is 0"),
        (["M"], "needs two models or more, and there is 1"),
        ("runs/M", "model_files is 'runs/M'; give a list of paths"),
        ([5, 6], "model_files is 5; give a path"),
        (["no/model", "M"], "no/model"),
    ],
)
def test_what_is_not_a_list_of_models_is_refused(files, said):
    with pytest.raises(InputError, match=said):
        Ranker.average(files)
