"""A training into the file of another model is refused, and one that is resumed says so."""

import pytest
from commands import COLOURS, KINDS, TINY, colour_dialogues, forked, train, weights

from polyagents import InputError, Ranker

PAIRS = [{"context": text, "label": label} for text, label, _ in colour_dialogues(16)]
SMALL = {"backbone": "scratch:tiny", "poly_n_codes": 4, "batchsize": 8, "num_epochs": 1, "progress": False}
OTHERS = {
    "bi": ("was trained as polyagents:PolyEncoder", "as polyagents:BiEncoder", {"model": "bi"}),
    "backbone": ("was trained as --backbone scratch:tiny", "as --backbone scratch:mini", {"backbone": "scratch:mini"}),
    "codes": ("was trained as --poly-n-codes 4", "as --poly-n-codes 8", {"poly_n_codes": 8}),
}


def as_flags(given):
    flags = {"-m": KINDS["poly"]} | {f"--{name.replace('_', '-')}": value for name, value in given.items()}
    model = flags.pop("--model", None)
    return [str(part) for pair in (flags | ({"-m": KINDS[model]} if model else {})).items() for part in pair]


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_train_model_refuses_the_file_of_another_model(other, checkpoint, colours, tmp_path):
    file = tmp_path / "M"
    train("poly", file, *colours, "--max-train-steps", 1)
    if not checkpoint:
        (tmp_path / "M.checkpoint").unlink()
    before = weights(file)
    was, now, given = OTHERS[other]
    with pytest.raises(InputError, match="give another --model-file for a new model") as refused:
        train("poly", file, *colours, "--max-train-steps", 2, *as_flags(given))
    assert was in str(refused.value) and now in str(refused.value)
    assert all((before["model"][name] == weight).all() for name, weight in weights(file)["model"].items())


@pytest.mark.parametrize("other", OTHERS)
def test_a_training_from_python_refuses_the_file_of_another_model(other, tmp_path):
    Ranker.train(PAIRS, tmp_path / "M", model="poly", **SMALL)
    was, now, given = OTHERS[other]
    with pytest.raises(InputError, match="give another --model-file for a new model") as refused:
        Ranker.train(PAIRS, tmp_path / "M", **{"model": "poly"} | SMALL | {"num_epochs": 2} | given)
    assert was in str(refused.value) and now in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "then"), [("hits@1", "loss"), ("mrr", "mrr --validation-metric-mode min"), ("loss", "rank")]
)
@pytest.mark.parametrize("way", ["parlai", "python"])
def test_a_run_does_not_go_on_by_another_metric(way, first, then, colours, tmp_path):
    """A loss would be compared with an accuracy, and never be better."""
    file = tmp_path / "M"
    if way == "python" and "mode" in then:
        pytest.skip("only ParlAI has that flag")

    def trained(metric, steps):
        if way == "python":
            return Ranker.train(PAIRS, file, valid=PAIRS, validation_metric=metric, max_train_steps=steps, **SMALL)
        return train("bi", file, *colours, "-veps", 0.2, "-vmt", *metric.split(), "--max-train-steps", steps)

    trained(first, 2)
    before = weights(f"{file}.checkpoint")["number_training_updates"] if way == "parlai" else None
    with pytest.raises(InputError, match=f"was chosen by --validation-metric {first}"):
        trained(then, 4)
    if way == "parlai":
        assert weights(f"{file}.checkpoint")["number_training_updates"] == before
    trained(first, 3)


@pytest.mark.slow
def test_another_architecture_still_starts_from_a_checkpoint_of_another_file(colours, tmp_path):
    train("poly", tmp_path / "M", *colours, "--max-train-steps", 1)
    train("bi", tmp_path / "N", *colours, "--max-train-steps", 1, "--init-model", tmp_path / "M.checkpoint")
    assert len(Ranker.load(tmp_path / "N").rank("i like red", COLOURS)) == len(COLOURS)


@pytest.mark.slow
def test_a_resumed_training_says_so(colours, tmp_path, capsys):
    flags = ("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *colours, *TINY)
    first = forked(*flags, "--max-train-steps", 2)
    again = forked(*flags, "--max-train-steps", 3)
    said = f"Resuming the training of {tmp_path / 'M'}: 2 updates made before."
    assert said not in first.out and said in again.out, again.out + again.err
    flags = [f"{flag}.tuned" if flag == tmp_path / "M" else flag for flag in flags]
    tuned = forked(*flags, "--max-train-steps", 1, "--init-model", tmp_path / "M")
    assert (tmp_path / "M.tuned").exists()
    assert not [one.out for one in (again, tuned) if "being loaded with opts" in one.out + one.err]


def test_a_resumed_training_from_python_says_so(tmp_path, capsys):
    for epochs in (1, 2):
        Ranker.train(PAIRS, tmp_path / "M", model="bi", **SMALL | {"num_epochs": epochs, "progress": True})
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "Resuming" in line]
    assert line == f"Resuming the training of {tmp_path / 'M'}: 2 updates made before."


@pytest.mark.slow
def test_a_finished_training_given_again_says_that_it_trains_nothing(tmp_path, capsys):
    """Whoever gives new examples with the old model file would take the old model for a new one."""
    for examples, epochs, said in ((PAIRS, 1, 0), (PAIRS, 2, 0), (PAIRS[:3], 2, 1)):
        Ranker.train(examples, tmp_path / "M", model="bi", **SMALL | {"num_epochs": epochs})
        assert capsys.readouterr().err.count(f"{tmp_path / 'M'} was trained to its end before (4 updates)") == said


@pytest.mark.parametrize("validations", [(), ("-veps", 1), ("-veps", -1)])
def test_a_finished_training_that_is_repeated_ends_with_the_same_model(validations, colours, tmp_path):
    flags = ("bi", tmp_path / "M", *colours, *validations, "--max-train-steps", 2)
    reports = train(*flags)
    before = weights(tmp_path / "M")["model"]
    again = train(*flags)
    after = weights(tmp_path / "M")
    assert after["number_training_updates"] == 2
    assert all((after["model"][name] == weight).all() for name, weight in before.items())
    assert [float(report["accuracy"]) for report in again] == [float(report["accuracy"]) for report in reports]
