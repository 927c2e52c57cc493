"""Without a network a name on the hub is refused at once, and one in the cache is loaded at once."""

import socket

import huggingface_hub
import pytest

from polyagents import InputError, network
from polyagents.text import pretrained


@pytest.fixture
def online(monkeypatch):
    """A client that would ask the hub; conftest.py keeps it offline otherwise. No proxy, and nothing is remembered."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(network.urllib.request, "getproxies", dict)
    network.is_reachable.cache_clear()
    yield lambda endpoint: monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
    network.is_reachable.cache_clear()


@pytest.fixture
def port():
    """A port of this machine, and its socket, which listens until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1], server


def test_a_hub_that_answers_is_asked(online, port):
    online(f"http://127.0.0.1:{port[0]}")
    assert not network.is_offline()
    assert not huggingface_hub.constants.HF_HUB_OFFLINE


def test_a_hub_that_does_not_answer_is_not_asked_again(online, port):
    number, server = port
    server.close()
    online(f"http://127.0.0.1:{number}")
    assert network.is_offline()
    assert huggingface_hub.constants.HF_HUB_OFFLINE  # so its client does not try for a minute


def test_a_proxy_is_trusted(online, port, monkeypatch):
    number, server = port
    server.close()
    online(f"http://127.0.0.1:{number}")
    monkeypatch.setattr(network.urllib.request, "getproxies", lambda: {"http": "http://proxy:3128"})
    assert not network.is_offline()


def test_a_name_is_refused_in_one_sentence(online, port, monkeypatch):
    number, server = port
    server.close()
    online(f"http://127.0.0.1:{number}")
    with pytest.raises(
        InputError, match="is not a folder here and not in the hub's cache, and the hub cannot be"
    ) as no:
        pretrained.load_tokenizer("somebody/no-such-model")
    assert "scratch:tiny" in str(no.value) and "\n" not in str(no.value)
