"""Whatever a model's or an index's files hold, they are used as they were meant, or refused in one sentence."""

import copy
import json
import shutil
from pathlib import Path

import pytest
from drawing import budget
from hostile import IRREGULAR, broken_tokenizers, irregular
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from polyagents import InputError, Ranker
from polyagents.files.context_lines import read_contexts
from polyagents.files.tensors import write_tensors
from polyagents.index.shard import checksum

HERE = Path(__file__).parent / "version_0_1"
TEXTS = ["i am here", "canada is in north america", "fruits are still very nice"]
BUDGETS = [20, pytest.param(500, marks=pytest.mark.release)]

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
plain |= st.sampled_from(["", "../x", "/etc/passwd", "nan", "-1", 10**30, -1, 0, 2**31, 2**63, 1e308, "evilmod:X"])
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner), max_leaves=8
)


def places_in(value, path=()):
    """The paths of everything inside a JSON value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in parts:
        yield from places_in(inner, (*path, name))


def changed(data, document):
    """A document with a few of its parts replaced, removed or doubled."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places_in(document))[:5_000]))
        if not path:
            continue
        holder = document
        for name in path[:-1]:
            holder = holder[name]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(values)
        else:
            del holder[path[-1]]
    return document


def damaged(data, content):
    """Bytes with a few of them changed, or cut short."""
    content = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    return bytes(content[: data.draw(st.integers(0, len(content)))]) if data.draw(st.booleans()) else bytes(content)


def tried(examples, check):
    """Run a check with this many drawn inputs."""
    budget(examples)(given(st.data())(check))()


@pytest.fixture
def files(tmp_path):
    """A model of 0.1.0, and an index of it with its approximate one."""
    for part in ("", ".opt", ".dict"):
        shutil.copy(HERE / f"poly{part}", tmp_path / f"M{part}")
    ranker = Ranker.load(tmp_path / "M")
    (tmp_path / "replies.txt").write_text("\n".join([*TEXTS, *map(str, range(60))]))
    ranker.approximate(ranker.index(tmp_path / "replies.txt", tmp_path / "index"), "hnsw")
    return tmp_path


@pytest.fixture
def folder(files):
    """The same model as a folder."""
    Ranker.load(files / "M").save_pretrained(files / "folder")
    return files / "folder"


def use_folder(folder):
    """Load the model and rank, and say in one line what is wrong with it."""
    try:
        Ranker.load(folder).rank("where is canada", TEXTS)
    except InputError as error:
        assert "\n" not in str(error)


def use(folder):
    """Load the model, rank, and search its index."""
    ranker = Ranker.load(folder / "M")
    ranker.rank("where is canada", TEXTS)
    ranker.rank("where is canada", ranker.open_index(folder / "index"))


@pytest.mark.slow
@pytest.mark.parametrize("examples", BUDGETS)
@pytest.mark.parametrize(
    "name", ["M.opt", "M.dict", "index/manifest.json", "index/shortlist.json", "index/verified.json"]
)
def test_json_with_parts_that_others_made_up(files, name, examples):
    document = json.loads((files / name).read_text())

    def check(data):
        (files / name).write_text(json.dumps(changed(data, document)))
        try:
            use(files)
        except InputError as error:
            assert "\n" not in str(error)

    tried(examples, check)


@pytest.mark.slow
@pytest.mark.parametrize("examples", BUDGETS)
@pytest.mark.parametrize("name", ["M", "M.opt", "M.dict", "index/manifest.json", "index/shard", "index/faiss"])
def test_files_with_damaged_bytes(files, name, examples):
    pattern = {"index/shard": "index/*.safetensors", "index/faiss": "index/*.faiss"}.get(name, name)
    (path,) = files.glob(pattern)
    content = path.read_bytes()

    def check(data):
        path.write_bytes(damaged(data, content))
        try:
            use(files)
        except InputError as error:
            assert "\n" not in str(error)

    tried(examples, check)


NASTY = [2**31, 2**63, 10**30, -(2**63), -1, 0, 1e308, float("nan"), float("inf"), True, None]
NASTY += ["", "x", "9" * 400, "\ud800", [], [1], {}]
NAMES = ("model", "backbone", "reduction_type", "poly_n_codes", "output_scaling", "similarity", "share_encoders")
NAMES += (
    "polyencoder_type",
    "poly_attention_type",
    "codes_init",
    "codes_mean",
    "precision",
    "dropout",
    "train_layers",
    "dict_file",
)
NAMES += ("text_truncate", "label_truncate", "vocabulary", "special_tok_lst", "person_tokens", "history_size")


def each_part_replaced(files):
    """A file's name and its content, each option and each part of the dictionary replaced by each nasty value."""
    options, dictionary = (json.loads((files / f"M{part}").read_text()) for part in (".opt", ".dict"))
    for value in NASTY:
        yield from (("M.opt", options | {name: value}) for name in NAMES)
        yield from (("M.dict", dictionary | {name: value}) for name in dictionary)
        for group in ("backbone_config", "special_tokens"):
            yield from (
                ("M.dict", dictionary | {group: dictionary[group] | {name: value}}) for name in dictionary[group]
            )


@pytest.mark.slow
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.release)])
def test_options_and_configurations_that_no_model_has(files, every):
    good = {name: (files / name).read_text() for name in ("M.opt", "M.dict")}
    for name, content in list(each_part_replaced(files))[::every]:
        (files / name).write_text(json.dumps(content))
        try:
            Ranker.load(files / "M").rank("where is canada", TEXTS)
        except InputError as error:
            assert "\n" not in str(error)
        (files / name).write_text(good[name])


def test_an_option_that_is_no_value_is_not_left_out(files):
    good = json.loads((files / "M.opt").read_text())
    for name in ("text_truncate", "poly_n_codes", "similarity", "share_encoders", "output_scaling", "context_prompt"):
        for value in ({}, {"a": 1}, [[]], [{}], *([False, True] if name == "context_prompt" else ())):
            (files / "M.opt").write_text(json.dumps(good | {name: value}))
            with pytest.raises(InputError, match=name.replace("_", ".")):
                Ranker.load(files / "M")


@pytest.mark.parametrize("name", ["backbone", "text_truncate", "label_truncate", "reduction_type", "similarity"])
def test_an_option_that_decides_scores_is_there(files, name):
    good = json.loads((files / "M.opt").read_text())
    (files / "M.opt").write_text(json.dumps({key: value for key, value in good.items() if key != name}))
    with pytest.raises(InputError, match=f"it has no {name}"):
        Ranker.load(files / "M")


def test_two_encoders_are_not_read_as_a_shared_one(files):
    good = json.loads((files / "M.opt").read_text())
    (files / "M.opt").write_text(json.dumps(good | {"share_encoders": True}))
    with pytest.raises(InputError, match=r"candidate_encoder\S* is not context_encoder"):
        Ranker.load(files / "M")


@pytest.mark.slow
@pytest.mark.parametrize("examples", [200, pytest.param(5_000, marks=pytest.mark.release)])
def test_lines_that_are_no_contexts(examples, tmp_path):
    file = tmp_path / "contexts.txt"

    def check(data):
        line = data.draw(
            st.text() | values.map(json.dumps) | st.dictionaries(st.just("context"), values).map(json.dumps)
        )
        file.write_bytes(line.encode("utf-8", "surrogatepass"))
        try:
            assert all(isinstance(context, str) for context in read_contexts(str(file)))
        except InputError as error:
            assert str(error).startswith((f"Line 1 of {file}: ", f"{file} has no contexts"))

    tried(examples, check)


@pytest.mark.slow
@pytest.mark.parametrize("examples", BUDGETS)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_model_folder_with_parts_that_others_made_up(folder, name, examples):
    document = json.loads((folder / name).read_text())

    def check(data):
        (folder / name).write_text(json.dumps(changed(data, document)))
        use_folder(folder)

    tried(examples, check)


@pytest.mark.slow
@pytest.mark.parametrize("examples", BUDGETS)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_folder_with_damaged_bytes(folder, name, examples):
    content = (folder / name).read_bytes()

    def check(data):
        (folder / name).write_bytes(damaged(data, content))
        use_folder(folder)

    tried(examples, check)


def each_part_of_a_configuration_replaced(good):
    """config.json with each part of it replaced by each nasty value."""
    for value in NASTY:
        yield from (good | {name: value} for name in good)
        for group in ("options", "backbone", "special_tokens", "training", "results"):
            yield from (good | {group: good[group] | {name: value}} for name in good[group])


@pytest.mark.slow
@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.release)])
def test_configurations_of_folders_that_no_model_has(folder, every):
    good = json.loads((folder / "config.json").read_text())
    for content in list(each_part_of_a_configuration_replaced(good))[::every]:
        (folder / "config.json").write_text(json.dumps(content))
        use_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_model_folder_that_is_not_whole(folder, name):
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        Ranker.from_pretrained(folder)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "clap_text_model"])  # transformers has no AutoModel of the second one
def test_code_that_a_configuration_names_is_not_asked_for(kind, folder, monkeypatch):
    config = json.loads((folder / "config.json").read_text())
    named = {"model_type": kind, "auto_map": dict.fromkeys(("AutoConfig", "AutoModel"), "somebody/evil--evil.Model")}
    (folder / "config.json").write_text(json.dumps(config | {"backbone": config["backbone"] | named}))
    monkeypatch.setattr("builtins.input", lambda *said: pytest.fail("transformers asks whether to run it"))
    use_folder(folder)


@pytest.mark.slow
@pytest.mark.parametrize("what", IRREGULAR)
def test_what_is_not_a_file_is_not_waited_for(files, what):
    Ranker.load(files / "M").save_pretrained(files / "folder")
    (shard,) = files.glob("index/*.safetensors")
    (shortlist,) = files.glob("index/*.faiss")
    names = ["M", "M.opt", "M.dict", "folder/config.json", "folder/tokenizer.json", "folder/model.safetensors"]
    for path in [files / name for name in names] + [shard, shortlist, files / "index" / "manifest.json"]:
        aside = path.rename(files / "aside")
        irregular(path, what)
        with pytest.raises(InputError):
            if path.parent.name == "index":
                ranker = Ranker.load(files / "M")
                ranker.approximate(ranker.open_index(files / "index")) if path == shortlist else use(files)
                Ranker.load(files / "M").open_index(files / "index")
            else:
                Ranker.load(path.parent if path.parent.name == "folder" else files / "M")
        path.unlink()
        aside.rename(path)
    use(files)


@pytest.mark.slow
def test_tokenizers_that_cannot_be_built(files, folder):
    good, dictionary = (json.loads((files / name).read_text()) for name in ("folder/tokenizer.json", "M.dict"))
    for number, content in enumerate(broken_tokenizers(good)):
        (folder / "tokenizer.json").write_text(json.dumps(content))
        (files / "M.dict").write_text(json.dumps(dictionary | {"tokenizer": content}))
        use_folder(folder) if number % 2 else use_folder(files / "M")


def test_a_text_of_an_index_that_is_not_utf_8(files):
    (path,) = files.glob("index/*.safetensors")
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  it is not a dict
    tensors["text"][:] = 0xFF
    write_tensors(str(path), tensors, {"checksum": checksum(str(path), tensors)})
    ranker = Ranker.load(files / "M")
    for search in (lambda index: ranker.rank("hi", index), lambda index: list(index.texts()), lambda index: index[0]):
        with pytest.raises(InputError, match="holds a text that is not UTF-8"):
            search(ranker.open_index(files / "index", exact=True))
    with pytest.raises(InputError, match="holds a text that is not UTF-8"):
        ranker.append(ranker.open_index(files / "index", exact=True), ["another"])
