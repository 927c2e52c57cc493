"""The tokens of a server: names, scopes, and a file that changes while the server runs."""

import time

import pytest
from stand import HERE, Stand, echo
from starlette.testclient import TestClient

from polyagents.errors import InputError
from polyagents.serving import reloading
from polyagents.serving.access_tokens import SCOPES, AccessTokens
from polyagents.serving.ranking_app import create_app
from polyagents.serving.reloading import Reloader
from polyagents.serving.sources import Sources

FIRST, OTHER = frozenset(SCOPES), frozenset(("ask", "metrics"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n one \n\n two words\r\n", [("", FIRST, "one"), ("", OTHER, "two words")]),
        ("please do help", [("", FIRST, "please do help")]),
        ("ask", [("", FIRST, "ask")]),
        ("grafana  metrics m\nx", [("grafana", frozenset(("metrics",)), "m"), ("", OTHER, "x")]),
        ("x\nops admin,metrics,ask y", [("", FIRST, "x"), ("ops", FIRST, "y")]),
        ("lab ask old\nlab ask new", [("lab", frozenset(("ask",)), "old"), ("lab", frozenset(("ask",)), "new")]),
    ],
)
def test_a_line_is_a_token_or_a_name_scopes_and_a_token(text, expected):
    assert [(token.name, token.scopes, token.secret) for token in AccessTokens(text).current] == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "grafana metric SECRET",
            "line 2 has an unknown scope (did you mean metrics?); there are ask, metrics, admin.",
        ),
        ("grafana ask,root SECRET", "line 2 has an unknown scope; there are"),
        ("grafana ask, SECRET", "line 2 has an unknown scope"),
        ("grafana SECRET ask", "line 2 has an unknown scope"),
        ("ask SECRET", "line 2 is not NAME SCOPE[,SCOPE] TOKEN"),
        ("grafana metrics SECRET of two", "line 2 is not NAME SCOPE[,SCOPE] TOKEN"),
        ("# SECRET", "line 2 begins with #"),
        ("  #SECRET", "line 2 begins with #"),
        ("bob ask first", "two lines have the same token"),
    ],
)
def test_a_slip_in_a_line_is_refused_and_gives_nobody_more_rights(line, said, tmp_path):
    (tmp_path / "tokens").write_text(f"first\n{line}\n")
    for given in ({"text": f"first\n{line}"}, {"path": str(tmp_path / "tokens")}):
        with pytest.raises(InputError) as refused:
            AccessTokens(**given)
        assert said in str(refused.value) and "SECRET" not in str(refused.value)


def bearer(token):
    """The header of a request with a token."""
    return {"Authorization": f"Bearer {token}"}


def test_a_token_does_what_its_scopes_allow_and_nothing_else():
    able = {"all": {*SCOPES}, "a": {"ask"}, "m": {"metrics"}, "r": {"admin"}, "b": {"ask", "metrics"}}
    lines = ["all", *(f"{token}'s {','.join(scopes)} {token}" for token, scopes in able.items() if token != "all")]
    app = create_app(Stand(echo), "\n".join(lines), reloader=Reloader(Sources("none")))
    with TestClient(app, HERE) as client:
        for token, scopes in able.items():
            client.headers = bearer(token)
            pages = [client.get(path) for path in ("/", "/docs", "/openapi.json", "/static/chat.js", "/nothing")]
            answers = {
                "ask": pages
                + [client.post(path, json={"context": "a", "history": ["a"]}) for path in ("/rank", "/chat")],
                "metrics": [client.get("/metrics")],
                "admin": [client.post("/admin/reload", json={})],  # 409 if it may: there is no such model
            }
            found = {scope for scope in SCOPES if all(answer.status_code != 403 for answer in answers[scope])}
            refused = {scope for scope in SCOPES if all(answer.status_code == 403 for answer in answers[scope])}
            assert found == scopes and refused == {*SCOPES} - scopes


def test_two_tokens_of_a_request_can_do_what_either_can():
    with TestClient(create_app(Stand(echo), "one ask a\ntwo metrics m"), HERE) as client:
        assert client.get("/", params={"token": "a"}).status_code == 200  # a cookie from here on
        assert client.get("/metrics").status_code == 403
        assert client.get("/metrics", headers=bearer("m")).status_code == 200
        assert client.get("/", headers=bearer("m")).status_code == 200


def test_a_link_replaces_the_cookie_of_an_older_token():
    with TestClient(create_app(Stand(echo), "lab ask old\nlab ask new"), HERE) as client:
        first = client.get("/", params={"token": "old"}).cookies["polyagents_serve"]
        assert client.get("/", params={"token": "new"}).cookies["polyagents_serve"] != first


# ---- a file that changes ---------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    """A file of tokens."""
    (tmp_path / "tokens").write_text("lab ask old\nops admin operator\n")
    return tmp_path / "tokens"


def status(client, token):
    return client.get("/docs", headers=bearer(token)).status_code


def test_tokens_are_added_removed_and_rotated_without_a_restart(file, monkeypatch, caplog):
    monkeypatch.setattr(reloading, "WATCH_SECONDS", 0.01)
    caplog.set_level("INFO", "polyagents.serve")
    tokens = AccessTokens(path=str(file))
    with TestClient(create_app(Stand(echo), tokens, reloader=Reloader(Sources("M"), tokens)), HERE) as client:

        def until(token, expected):
            for _ in range(1_000):
                if status(client, token) == expected:
                    return
                time.sleep(0.01)
            raise AssertionError(token)

        cookie = client.get("/", params={"token": "old"}).cookies["polyagents_serve"]
        client.cookies.clear()
        file.write_text("lab ask old\nlab ask new\nops admin operator\n")
        until("new", 200)
        assert status(client, "old") == 200
        file.write_text("lab ask new\nops admin operator\n")
        until("old", 401)
        assert status(client, "new") == 200
        assert client.get("/", cookies={"polyagents_serve": cookie}).status_code == 401  # ends with its token
    said = [record.fields for record in caplog.records if record.getMessage() == "Other tokens are valid"]
    assert said == [{"tokens": 3, "names": "lab,lab,ops"}, {"tokens": 2, "names": "lab,ops"}]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.write_text("\n"), "is empty"),
        (lambda file: file.write_bytes(b"a\x00SECRET"), "it is not text"),
        (lambda file: file.write_bytes(b"\xff"), "it is not text"),
        (lambda file: file.write_bytes(b"a\x0cSECRET"), "it is not text"),
        (lambda file: file.write_text("a\u2028SECRET"), "it is not text"),
        (lambda file: file.write_text("lab aks SECRET"), "line 1 has an unknown scope"),
        (lambda file: file.unlink(), "No such file"),
    ],
)
def test_a_damaged_file_is_refused_and_the_old_tokens_stay(file, damage, said, caplog):
    tokens = AccessTokens(path=str(file))
    reloader = Reloader(Sources("none"), tokens)
    with TestClient(create_app(Stand(echo), tokens, reloader=reloader), HERE) as client:
        damage(file)
        answer = client.post("/admin/reload", json={}, headers=bearer("operator"))
        assert answer.status_code == 409 and "tokens were refused" in answer.text
        assert client.get("/readyz").json()["reload"] == "refused"
        tokens.renew()
        assert (status(client, "old"), status(client, "a"), status(client, "SECRET")) == (200, 401, 401)
        (line,) = [record.getMessage() for record in caplog.records if "token" in record.getMessage()]  # once
        assert "the old tokens stay" in line and said in line and "SECRET" not in line
        file.write_text("new")
        tokens.renew()
        assert status(client, "new") == 200 and status(client, "old") == 401 and not tokens.refused


def test_a_file_that_is_just_being_written_is_not_used(file):
    tokens = AccessTokens(path=str(file))
    before = tokens.current
    for part in ("o", "operato"):  # a look at each moment of a slow write
        file.write_text(part)
        tokens.renew(at_once=False)
        assert tokens.current == before
    tokens.renew(at_once=False)
    assert [token.secret for token in tokens.current] == ["operato"]


def test_a_rotation_does_not_wait_for_a_generation_that_is_being_loaded(file):
    """Nor is it lost if the generation is refused: `none` is not a model."""
    tokens = AccessTokens(path=str(file))
    with TestClient(create_app(Stand(echo), tokens, reloader=Reloader(Sources("none"), tokens)), HERE) as client:
        file.write_text("lab ask new\nops admin operator\n")
        assert client.post("/admin/reload", json={}, headers=bearer("operator")).status_code == 409
        assert status(client, "new") == 200 and status(client, "old") == 401
