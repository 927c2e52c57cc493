"""Models on the hub: huggingface_hub's own client against a stand-in of the hub's HTTP, with and without a network."""

import os
import subprocess
import sys
import time

import huggingface_hub
import numpy as np
import pytest
from model_hub import Hub

from polyagents import InputError, Ranker

CONTEXTS, TEXTS = ["i like red\ndo you ?", "where is canada"], ["so you like red", "canada is in north america"]
NAME = "somebody/a-ranker"


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub, and this process's client turned to it; conftest.py keeps it offline otherwise."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Hub() as running:
        constants = huggingface_hub.constants
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, running.address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", running.address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # a second protocol, of chunks; the hub has both
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        huggingface_hub.utils._http.close_session()
        yield running
        huggingface_hub.utils._http.close_session()


@pytest.mark.parametrize("kind", ["bi", "cross"])
def test_a_model_goes_to_the_hub_and_comes_back(kind, trained, hub):
    ranker = Ranker.load(trained(kind))
    url = ranker.push_to_hub(NAME, token="secret", license="mit")
    assert url.startswith(f"{hub.address}/{NAME}/commit/")
    ((_, files),) = hub.repositories[NAME]["main"]  # one commit
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= files.keys()
    assert b'license: "mit"' in files["README.md"]
    assert b"library_name: polyagents" in files["README.md"]
    again = Ranker.from_pretrained(NAME)
    assert np.array_equal(ranker.score(CONTEXTS, TEXTS), again.score(CONTEXTS, TEXTS))
    assert not any("README" in asked for asked in hub.asked if "resolve" in asked)  # nothing that is not needed


def test_a_second_time_nothing_is_downloaded_and_without_a_network_it_is_there(trained, hub, monkeypatch):
    Ranker.load(trained("bi")).push_to_hub(NAME, token="secret")
    Ranker.from_pretrained(NAME)
    hub.asked.clear()
    Ranker.from_pretrained(NAME)
    assert not [asked for asked in hub.asked if asked.startswith("GET") and "resolve" in asked]
    hub.asked.clear()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    huggingface_hub.utils._http.close_session()
    Ranker.from_pretrained(NAME)
    assert not hub.asked


def test_revisions(trained, hub):
    first = Ranker.load(trained("bi"))
    first.push_to_hub(NAME, token="secret")
    commit = hub.repositories[NAME]["main"][-1][0]
    second = Ranker.load(trained("poly"))
    second.push_to_hub(NAME, token="secret")
    second.push_to_hub(NAME, token="secret", revision="poly")
    assert Ranker.from_pretrained(NAME).model.architecture == "PolyEncoder"
    assert Ranker.from_pretrained(NAME, revision=commit).model.architecture == "BiEncoder"
    assert Ranker.from_pretrained(NAME, revision="poly").model.architecture == "PolyEncoder"
    with pytest.raises(InputError, match="no such revision"):
        Ranker.from_pretrained(NAME, revision="nothing")


def test_what_is_refused_is_said_in_one_sentence(trained, hub):
    ranker = Ranker.load(trained("bi"))
    with pytest.raises(InputError, match="could not be uploaded") as refused:
        ranker.push_to_hub(NAME, token="wrong")
    assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="no such repository, or it is private"):
        Ranker.from_pretrained("somebody/nothing")
    with pytest.raises(InputError, match="is no folder") as refused:
        Ranker.from_pretrained("/no/such/folder")
    assert "\n" not in str(refused.value)
    hub.put("somebody/bert", {"config.json": b'{"model_type": "bert"}', "README.md": b""})
    with pytest.raises(InputError, match="has no model"):
        Ranker.from_pretrained("somebody/bert")


@pytest.mark.parametrize("config", [b"{", b"[]", b'{"model_type": "bert", "auto_map": {"AutoModel": "evil.Model"}}'])
def test_other_peoples_files_run_nothing(config, hub):
    hub.put(
        NAME, {"config.json": config, "model.safetensors": b"\x80\x04.", "tokenizer.json": b"{}", "evil.py": b"1/0"}
    )
    with pytest.raises(InputError, match="is not the configuration of a ranker"):
        Ranker.from_pretrained(NAME)
    assert not any("evil" in asked for asked in hub.asked)


LOADS = """
import sys
from polyagents import InputError, Ranker
for name in sys.argv[1:]:
    try:
        print(Ranker.from_pretrained(name).score("hi", ["hello", "bye"]).tolist())
    except InputError as error:
        print(f"InputError: {error}")
"""


def load_elsewhere(*names, **variables):
    """Load models in a process of its own, with these environment variables: a line for each."""
    command = [sys.executable, "-c", LOADS, *map(str, names)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | variables, check=True)
    return done.stdout.splitlines()


def test_environment_variables_as_users_set_them(trained, hub, tmp_path):
    ranker = Ranker.load(trained("bi"))
    ranker.push_to_hub(NAME, token="secret")
    ranker.save_pretrained(tmp_path / "folder")
    variables = {"HF_ENDPOINT": hub.address, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
    downloaded, missing, folder = load_elsewhere(NAME, "somebody/else", tmp_path / "folder", **variables)
    assert downloaded == folder == str(ranker.score("hi", ["hello", "bye"]).tolist())
    assert missing.startswith("InputError: somebody/else is no folder")
    assert not any("folder" in asked for asked in hub.asked)


def test_no_network_is_said_quickly(monkeypatch, tmp_path):
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    begin = time.monotonic()
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set"):
        Ranker.from_pretrained(NAME)
    assert time.monotonic() - begin < 20  # where the network was asked it is a minute


def test_a_folder_has_no_revision(tmp_path):
    with pytest.raises(InputError, match="is on the disk, and has no revision"):
        Ranker.from_pretrained(tmp_path, revision="main")
