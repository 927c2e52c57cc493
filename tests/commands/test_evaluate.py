"""`polyagents evaluate`: the same numbers as eval_model and ir_measures, whole files, and what it refuses."""

import json
from pathlib import Path

import ir_measures
import pytest
from commands import SAMPLE, colour_dialogues, evaluate, own, train, write_task
from ir_measures import AP, RR, R, Success, nDCG
from parlai.scripts.train_model import TrainLoop

from polyagents.__main__ import main
from polyagents.parlai_patches import exchanges, wrapped

SOME = ("-t", SAMPLE, "-ne", 40, "-bs", 8)
TEACHERS = {"hits@1": "hits@1", "hits@5": "hits@5", "hits@10": "hits@10", "MRR": "mrr"}  # our name: eval_model's


@pytest.fixture
def report(tmp_path, capsys):
    """Run the command: its JSON report, and the lines of its table."""

    def run(model_file, *arguments):
        capsys.readouterr()
        own("evaluate", "-mf", model_file, "--out", tmp_path / "report.json", *arguments)
        return json.loads((tmp_path / "report.json").read_text()), capsys.readouterr().out.splitlines()

    return run


def values(found, model=0):
    """The metrics of a report, without their intervals."""
    return {name: metric["value"] for name, metric in found["models"][model]["metrics"].items()}


# ---- the numbers -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_the_numbers_are_those_of_eval_model(kind, trained, report):
    found, lines = report(trained(kind), *SOME)
    theirs = evaluate(trained(kind), *SOME)
    assert {name: values(found)[name] for name in TEACHERS} == pytest.approx(
        {name: theirs[other] for name, other in TEACHERS.items()}, abs=1e-6
    )
    assert found["examples"] == theirs["exs"] == 40
    assert found["candidates"] == {"mean": 20, "least": 20, "most": 20, "source": "inline"}
    for metric in found["models"][0]["metrics"].values():
        assert 0 <= metric["low"] <= metric["value"] <= metric["high"] <= 1
    first = found["models"][0]["metrics"]["R@1"]
    row = f"R@1      {first['value']:.3f} ({first['low']:.3f}, {first['high']:.3f})"
    assert row in lines and f"{kind}-encoder" in "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [("--eval-candidates", "batch"), ("--eval-candidates", "fixed", "--fixed-candidates-path", "{replies}")]
)
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_other_candidates(kind, source, model, replies, report):
    """Labels that are not in the fixed ones are ranked with them, each for its own example."""
    flags = [*SOME, *(flag.format(replies=replies) for flag in source)]
    file = model(kind)
    found, theirs = report(file, *flags)[0], evaluate(file, *flags)
    assert {name: values(found)[name] for name in TEACHERS} == pytest.approx(
        {name: theirs[other] for name, other in TEACHERS.items()}, abs=1e-6
    )
    assert found["candidates"]["source"] == source[1]
    assert found["candidates"]["most"] == {"batch": 8, "fixed": 7}[source[1]]


def test_several_right_answers_against_ir_measures_from_the_files(trained, report, tmp_path):
    """Douban's test has ten candidates, of which one or more are right."""
    run, qrels = tmp_path / "run", tmp_path / "qrels"
    files = ("--trec-run", run, "--trec-qrels", qrels, "--recall-at", "1,2,5")
    found, lines = report(trained("poly"), "-t", "polyagents.tasks.douban:Sample", "-dt", "test", "-bs", 4, *files)
    assert found["right_answers"]["most"] > 1
    theirs = {"MRR": RR, "MAP": AP}
    for k in (1, 2, 5):
        theirs |= {f"R@{k}": R @ k, f"hits@{k}": Success @ k, f"nDCG@{k}": nDCG @ k}
    expected = ir_measures.calc_aggregate(
        [*theirs.values()], ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    )
    assert values(found) == pytest.approx({name: expected[metric] for name, metric in theirs.items()}, abs=1e-6)
    assert values(found)["hits@5"] > values(found)["R@5"] and values(found)["MAP"] != values(found)["MRR"]
    assert any(line.startswith("hits@1") for line in lines) and "right on average" in lines[0]


def test_labels_of_the_batch_where_the_task_brings_no_candidates(trained, report, tmp_path):
    lines = [(text, label, None) for text, label, _ in colour_dialogues(8)]
    found, table = report(trained("bi"), *write_task(tmp_path, lines), "-bs", 4)
    assert found["candidates"]["source"] == "batch" and "(batch)" in table[0]


# ---- the first examples ----------------------------------------------------------------------------------------------


@pytest.fixture
def talk(tmp_path):
    """The flags of a task of ten dialogues of three turns, the second of which has two labels."""
    lines = [
        f"text:{text}\tlabels:{label}{'|b' * (turn == 1)}\tlabel_candidates:{'|'.join(['b', *candidates])}"
        + "\tepisode_done:True" * (turn == 2)
        for number, (text, label, candidates) in enumerate(colour_dialogues(30))
        for turn in [number % 3]
    ]
    (tmp_path / "talk.txt").write_text("\n".join(lines) + "\n")
    return "-t", "fromfile:parlaiformat", "--fromfile-datapath", tmp_path / "talk.txt"


def same(one, other):
    """Whether two of ParlAI's reports have the same metrics, but for the rounding of other batches; times differ."""
    names = ("exs", "hits@1", "mrr", "rank", "loss", "accuracy", "f1", "clen", "llen")
    return pytest.approx({name: one[name] for name in names}, rel=1e-5) == {name: other[name] for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("heard", ["label", "model"])
def test_the_first_examples_are_the_same_whatever_the_batch(heard, trained, report, talk):
    """Whole dialogues; of the last one two turns. A context has the labels so far, or the model's own replies."""
    flags = (*talk, "-ne", 26, "--use-reply", heard)
    found = [report(trained("bi"), *flags, *size)[0] for size in (("-bs", 1), ("-bs", 7), ())]
    assert [(one["examples"], one["dialogues"]) for one in found] == [(26, 9)] * 3
    assert len({one["digest"] for one in found}) == 1 and found[2]["batchsize"] == 64
    assert values(found[1]) == values(found[2]) == pytest.approx(values(found[0]))
    theirs = [evaluate(trained("bi"), *flags, "-bs", size) for size in (1, 7, 64)]
    assert theirs[0]["exs"] == 26 and same(theirs[0], theirs[1]) and same(theirs[0], theirs[2])
    assert values(found[0])["MRR"] == pytest.approx(theirs[0]["mrr"])
    other = report(trained("bi"), *flags[:-3], 25)[0] if heard == "label" else found[0]
    assert (other["digest"] != found[0]["digest"]) == (heard == "label")


def test_of_several_processes_each_evaluates_its_dialogues(trained, talk, monkeypatch):
    alone, parts = evaluate(trained("bi"), *talk, "-ne", 26, "-bs", 7), []
    monkeypatch.setattr(exchanges, "num_workers", lambda: 2)
    for rank in (0, 1):
        monkeypatch.setattr(exchanges, "get_rank", lambda rank=rank: rank)
        parts.append(evaluate(trained("bi"), *talk, "-ne", 26, "-bs", 7))
    assert [part["exs"] for part in parts] == [14, 12]
    for name in ("hits@1", "mrr", "loss", "clen"):
        assert sum(part[name] * part["exs"] for part in parts) == pytest.approx(alone[name] * 26)


@pytest.mark.slow
def test_validation_takes_the_same_examples(talk, tmp_path):
    """Five updates, then the first 26 examples; the best model is evaluated as `polyagents eval_model` does it."""
    flags = (*talk, "--max-train-steps", 5, "-vme", 26, "--short-final-eval", True, "--candidates", "batch")
    valid, test = train("bi", tmp_path / "M", *flags, "--eval-batchsize", 7)
    stats = json.loads((tmp_path / "M.trainstats").read_text())
    assert float(valid["exs"]) == 26 and test == valid  # this task gives one file as train, valid and test
    assert stats["evaluated"]["test"] == stats["evaluated"]["valid"] and not (tmp_path / "M.test").exists()
    assert same(evaluate(tmp_path / "M", *talk, "-ne", 26), {name: float(value) for name, value in valid.items()})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "again"),
    [((), 0), (("-vme", 8, "--short-final-eval", True), 0), (("-vme", 8), 1), (("--final-extra-opt", "more.json"), 1)],
    ids=["all of valid", "the same part", "of all after a part", "other options"],
)
def test_the_end_of_a_run_evaluates_what_the_kept_model_was_not(flags, again, colours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("more.json").write_text(json.dumps({"datatype": "valid", "eval_candidates": "batch"}))
    wrapped.wrap_loop()  # before the method that it wraps is replaced for this test
    single, evaluated = TrainLoop._run_single_eval, []
    monkeypatch.setattr(TrainLoop, "_run_single_eval", lambda *a: (evaluated.append(a[4]), single(*a))[1])
    valid, test = train("poly", "M", *colours, "--max-train-steps", 4, "-vstep", 2, *flags)
    stats = json.loads(Path("M.trainstats").read_text())
    assert evaluated == ["valid"] * (len(stats["valid_reports"]) + again) and len(stats["valid_reports"]) > 2
    fresh = evaluate("M", *colours, *(("-ne", 8) if "--short-final-eval" in flags else ()))
    assert same(fresh, {name: float(value) for name, value in valid.items()}) and test == valid
    assert f"{float(valid['hits@1']):.4g}".lstrip("0") in Path("M.valid").read_text()


def test_labels_of_the_batch_depend_on_it_and_say_so(trained, report, talk):
    found, lines = report(trained("bi"), *talk, "--eval-candidates", "batch", "-bs", 5)
    assert found["candidates"]["most"] <= 5 and any(line.startswith("R@1/5 ") for line in lines)
    found, lines = report(trained("bi"), *talk, "-bs", 5)
    assert any(line.startswith("R@1 ") for line in lines)


def test_examples_without_a_label_are_not_counted(trained, report, tmp_path):
    turns = [("a", "b", "b|c"), ("d", "", "b|c"), ("e", "c", "b|c")]
    lines = [f"text:{text}\tlabels:{label}\tlabel_candidates:{listed}" for text, label, listed in turns]
    (tmp_path / "few.txt").write_text("{}\n{}\tepisode_done:True\n{}\tepisode_done:True\n".format(*lines))
    found, _ = report(trained("bi"), "-t", "fromfile:parlaiformat", "--fromfile-datapath", tmp_path / "few.txt")
    assert (found["examples"], found["dialogues"]) == (2, 2)


def test_candidates_that_the_model_reads_alike_are_said(trained, tmp_path, capsys):
    dialogues = [("a", "b c", ["b c", "b d", "e"]), ("f", "e", ["e", "b"])]
    flags = write_task(tmp_path, dialogues)
    for limit, said in ((3, "In 1 of 2 examples, candidates with different texts"), (72, "")):
        own("evaluate", "-mf", trained("bi"), *flags, "-dt", "valid", "--label-truncate", limit)
        error = capsys.readouterr().err
        assert said in error and ("different texts" in error) == bool(said)


def test_of_one_dialogue_there_is_no_interval(trained, report, tmp_path):
    text = "text:a\tlabels:b\tlabel_candidates:b|c\ntext:e\tlabels:c\tlabel_candidates:b|c\tepisode_done:True\n"
    (tmp_path / "one.txt").write_text(text)
    found, lines = report(trained("bi"), "-t", "fromfile:parlaiformat", "--fromfile-datapath", tmp_path / "one.txt")
    assert found["models"][0]["metrics"]["MRR"]["low"] is None and found["dialogues"] == 1
    assert any(line.startswith("MRR") and "(" not in line for line in lines)
    assert lines[-1] == "Right answers lose ties."


# ---- several models --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_models_are_compared_with_the_first(trained, report):
    poly, bi = trained("poly"), trained("bi")
    found, lines = report(poly, *SOME, "--compare", bi, "--compare", poly)
    assert [one["model_file"] for one in found["models"]] == [poly, bi, poly]
    assert found["models"][0]["less_the_first"] == {}
    assert values(found, 1) == values(report(bi, *SOME)[0])
    for name, difference in found["models"][1]["less_the_first"].items():
        assert difference["value"] == pytest.approx(values(found, 1)[name] - values(found)[name])
        assert difference["low"] <= difference["value"] <= difference["high"] and 0 < difference["p"] <= 1
    assert all(
        one == {"value": 0, "low": 0, "high": 0, "p": 1} for one in found["models"][2]["less_the_first"].values()
    )
    assert "difference" in lines[2] and "+0.000" in "".join(lines) and "In brackets 95 %" in lines[-2]


@pytest.mark.slow
def test_a_task_that_draws_its_candidates_is_said_not_to_be_comparable(trained, tmp_path, monkeypatch, ends_with_2):
    """Here the second model is asked another number of candidates, as a careless teacher would have it."""
    bi, poly = trained("bi"), trained("poly")  # before the change: their trainings evaluate, too
    drawn = iter("ab")
    add = exchanges.add_to_hash

    def add_another(message, digest):
        add({**message, "text": next(drawn, "c")}, digest)

    monkeypatch.setattr(exchanges, "add_to_hash", add_another)
    (said,) = ends_with_2("evaluate", "-mf", bi, *SOME, "--compare", poly)
    assert "was evaluated on other examples" in said


# ---- what cannot work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("-mf", "{folder}/nothing"), "There is no trained model at {folder}/nothing"),
        (("--compare", "{folder}/nothing"), "There is no trained model at {folder}/nothing"),
        (("--compare", ""), "--compare: its value is empty"),
        (("--out", ""), "--out: its value is empty"),
        (("--trec-run", "{folder}"), "--trec-run {folder} cannot be written"),
        (("--trec-qrels", "{folder}/no/F"), "--trec-qrels {folder}/no/F cannot be written"),
        (("--trec-run", "{folder}/F", "--out", "{folder}/F"), "--out, --trec-run name the same file"),
        (("-t", f"{SAMPLE},convai2"), "evaluate takes one task"),
        (("-dt", "train"), "--datatype train draws its examples"),
        (("--dynamic-batching", "full"), "--dynamic-batching"),
        (("-ne", "0"), "'0' is not a whole number of 1 or more"),
        (
            ("-t", "fromfile:parlaiformat", "--fromfile-datapath", "{folder}/nothing"),
            "there is no file {folder}/nothing",
        ),
        (
            ("-t", "fromfile:parlaiformat", "--fromfile-datapath", "{folder}/blank.txt"),
            "no example with text and label",
        ),
        (
            ("-t", "fromfile:parlaiformat", "--fromfile-datapath", "{folder}/bare.txt"),
            "is not in the format of its task (ParlaiDialog",
        ),
        (("--recall-at", "0"), "--recall-at"),
    ],
)
def test_bad_input_gets_one_sentence(flags, sentence, trained, tmp_path, ends_with_2):
    (tmp_path / "blank.txt").write_text("text:hello\tlabels:\tlabel_candidates:b|c\tepisode_done:True\n")
    (tmp_path / "bare.txt").write_text("text:hello\tepisode_done:True\n")
    before = sorted(tmp_path.iterdir())
    given = ("-mf", trained("bi"), "-t", SAMPLE, "-ne", "8", *(flag.format(folder=tmp_path) for flag in flags))
    assert sentence.format(folder=tmp_path) in ends_with_2("evaluate", *given)[-1]
    assert sorted(tmp_path.iterdir()) == before


def test_another_agents_model_is_refused(tmp_path, ends_with_2):
    (tmp_path / "M").touch()
    (tmp_path / "M.opt").write_text(json.dumps({"model": "repeat_label", "task": SAMPLE}))
    said = ends_with_2("evaluate", "-mf", tmp_path / "M", "-m", "repeat_label", "-t", SAMPLE)
    assert "is not a ranker of polyagents" in said[-1]


def test_a_task_is_needed_before_parlai_is_imported(trained, ends_with_2):
    assert "the following arguments are required: -t/--task" in ends_with_2("evaluate", "-mf", trained("bi"))[-1]
    assert "required: -mf/--model-file" in ends_with_2("evaluate", "-t", SAMPLE)[-1]


def test_help_has_the_flags_of_the_command_and_of_parlai(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["polyagents", "evaluate", "--help"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "--trec-run" in said and "--compare" in said and "--batchsize" in said


# ---- what ParlAI's agents wrote --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_parlais_own_agent_wrote(written, report, tmp_path):
    found, _ = report(written("poly"), *write_task(tmp_path, colour_dialogues(8)))
    assert found["examples"] == 8 and found["models"][0]["architecture"] == "poly-encoder"
