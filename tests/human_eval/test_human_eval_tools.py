"""Potato and Label Studio: their projects of our pairs, and the answers that come back.

These tests read files that the tools' own versions wrote: those in Chromium write them, if
POLYAGENTS_TOOL_FILES names a folder.
"""

import contextlib
import copy
import json
import os
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from engines import free_port
from environments import installed
from evaluation import MODELS, SCRIPT, evaluation, human_eval
from playwright.sync_api import expect

from polyagents import InputError
from polyagents.human_eval.formats.shown_pairs import left_of, shown_pairs
from polyagents.human_eval.storage.evaluation_store import EvaluationStore
from polyagents.human_eval.storage.people_records import work_of_people

FILES = Path(__file__).parent / "tool_files"
POTATO, LABEL_STUDIO = "potato-annotation==2.12.1", "label-studio==1.23.2"
QUESTION = "Who is <b>nicer</b> & kinder?"
ANSWERS = [("Speaker A", "it asks"), ("Speaker B", ""), ("Speaker B", "two\nlines"), ("Speaker A", "")]


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of three pairs and a check, whose texts are markup, in the present folder."""
    monkeypatch.chdir(tmp_path)
    opened, _ = evaluation("human_eval.db", checks=1, said=SCRIPT)
    yield opened
    opened.close()


def printed(capsys, *arguments):
    """What a step prints."""
    capsys.readouterr()
    human_eval(*arguments)
    return json.loads(capsys.readouterr().out)


def expected(store, answers=ANSWERS):
    """The model that each pair's answer prefers, checks left out, and its reason: by pair."""
    conversations, pairs = store.conversations(), {pair.name: pair for pair in store.pairs()}
    found = {}
    for (name, _), (speaker, reason) in zip(shown_pairs(pairs.values(), conversations), answers, strict=True):
        side = pairs[name].sides[left_of(name) ^ (speaker == "Speaker B")]
        if pairs[name].right is None:
            found[name] = (conversations[side.conversation].models[side.speaker], reason)
    return found


def judged(store):
    """What was judged: by pair, the model that won and the reason."""
    return {one.pair: (one.winner, one.reason) for one in store.judgements()}


@pytest.fixture(params=["potato", "label_studio"])
def answered(request, store, tmp_path):
    """Answers of one person as a tool keeps them, for `import`."""
    if request.param == "label_studio":
        return str(shutil.copy(FILES / "label_studio.json", tmp_path / "export.json"))
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    shutil.copytree(FILES / "annotation_output", tmp_path / "project/annotation_output")
    return "project"


def test_answers_come_back_into_the_report(answered, store, capsys):
    first = printed(capsys, "import", answered)
    assert (first["answers"], first["malformed"]) == (len(ANSWERS), 0)
    assert printed(capsys, "import", answered)["answers"] == 0  # the same once more
    assert judged(store) == expected(store)
    found = store.judgements()
    assert {one.question for one in found} == {QUESTION} and all(one.ended for one in found)
    (person,) = work_of_people(store)
    assert person.person not in {one.annotator for one in found} == {person.name}  # a pseudonym
    assert (person.checks, person.judgements) == (1, 3)


def test_what_a_person_changed_replaces_the_earlier_answer(answered, store, tmp_path, capsys):
    human_eval("import", answered)
    if answered == "project":
        path = next(tmp_path.glob("project/annotation_output/*/user_state.json"))
    else:
        path = Path(answered)
    text = path.read_text()
    other = {"Speaker A": "Speaker B", "Speaker B": "Speaker A"}
    path.write_text(text.replace("Speaker A", "Speaker X").replace("Speaker B", "Speaker A").replace("X", "B"))
    assert printed(capsys, "import", answered)["answers"] == 0
    assert judged(store) == expected(store, [(other[speaker], reason) for speaker, reason in ANSWERS])


def test_answers_belong_to_the_database_that_was_exported(answered, store):
    evaluation("other.db", said="another text")[0].close()
    with pytest.raises(InputError, match=r"Pair [0-9a-f]+ of \w+ is not in .*other\.db; give the --database"):
        human_eval("import", answered, "--database", "other.db")
    with pytest.raises(InputError, match=r"There is no missing\.db"):
        human_eval("import", answered, "--database", "missing.db")
    assert EvaluationStore("other.db").judgements() == [] == store.judgements()


def test_projects_are_blind_and_have_checks_first(store, tmp_path):
    for tool in ("potato", "label_studio"):
        human_eval("export", "--to", tool, "--out", tool, "--question", QUESTION)
    written = "".join(path.read_text() for path in tmp_path.glob("*/*.*"))
    assert not any(model in written for model in MODELS)
    check, *others = [pair.name for pair in sorted(store.pairs(), key=lambda pair: pair.right is None)]
    rows = [json.loads(line) for line in (tmp_path / "potato/pairs.jsonl").read_text().splitlines()]
    tasks = [task["data"] for task in json.loads((tmp_path / "label_studio/tasks.json").read_text())]
    assert [row["id"] for row in rows] == [task["pair"] for task in tasks] == [check, *others]
    assert {"speaker": "Given before the conversation", "text": "i like blue ."} in rows[0]["left"]
    assert "<script" not in tasks[0]["left"] and "&lt;script" in tasks[0]["left"]
    assert len({left_of(name) for name in map(str, range(20))}) == 2  # drawn


def change(entry, path, value):
    """Put a value in a copy of an entry."""
    entry = copy.deepcopy(entry)
    *inner, last = path
    there = entry
    for key in inner:
        there = there[key]
    there[last] = value
    return entry


LABEL_STUDIO_FAULTS = [
    (("annotations",), {}, "its annotations are not a list"),
    (("data",), [], "its data are not an object"),
    (("data", "pair"), 3, "the pair of an answer is not a text"),
    (("data", "question"), "", "an answer does not say who prefers"),
    (("annotations", 0), 3, "its annotation are not an object"),
    (("annotations", 0, "result"), None, "the result of an annotation is not a list"),
    (("annotations", 0, "result", 0, "value"), 3, "its value are not an object"),
    (("annotations", 0, "result", 0, "value", "choices"), ["Speaker C"], "an answer does not say who prefers"),
    (("annotations", 0, "result", 0, "from_name"), ["preferred"], "a name of what was asked is not a text"),
    (("annotations", 0, "completed_by"), None, "an annotation does not say who has completed it"),
    (("annotations", 0, "completed_by"), {"email": ""}, "an annotation does not say who has completed it"),
    (("annotations", 0, "updated_at"), "soon", "an answer does not say when it was given"),
]


@pytest.mark.parametrize(("path", "value", "reason"), LABEL_STUDIO_FAULTS, ids=lambda x: str(x)[:40])
def test_a_malformed_task_is_skipped_and_named(path, value, reason, store, tmp_path, capsys):
    tasks = json.loads((FILES / "label_studio.json").read_text())
    (tmp_path / "export.json").write_text(json.dumps([change(tasks[0], path, value), *tasks[1:]]))
    human_eval("import", "export.json")
    said = capsys.readouterr()
    assert f"export.json, dialogue 1, is skipped: {reason}" in said.err
    assert json.loads(said.out)["answers"] == len(ANSWERS) - 1


POTATO_FAULTS = [
    ("no JSON", "it is not JSON"),
    (
        {
            "user_id": "ann",
            "instance_id_to_label_to_value": {"p": [[{"schema": "preferred"}, "Speaker A"]]},
            "instance_id_to_behavioral_data": {"p": {"total_time_ms": 10**400, "session_end": "soon"}},
        },
        "an answer does not say when it was given",
    ),
    ([], "its user_state are not an object"),
    ({"instance_id_to_label_to_value": []}, "its label_to_value are not an object"),
    ({"instance_id_to_label_to_value": {"p": [3]}}, "its labels are not pairs of a label and a value"),
    ({"instance_id_to_label_to_value": {"p": [[[], "x"]]}}, "its label are not an object"),
    ({"instance_id_to_label_to_value": {"p": [[{"schema": []}, "x"]]}}, "a name of what was asked is not a text"),
    (
        {"user_id": "ann", "instance_id_to_label_to_value": {"p": [[{"schema": "preferred"}, "Speaker A"]]}},
        "an answer does not say when it was given",
    ),
]


@pytest.mark.parametrize(("state", "reason"), POTATO_FAULTS, ids=[reason for _, reason in POTATO_FAULTS])
def test_a_malformed_file_of_an_annotator_is_skipped_and_named(state, reason, store, tmp_path, capsys):
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    shutil.copytree(FILES / "annotation_output", tmp_path / "project/annotation_output")
    bad = tmp_path / "project/annotation_output/zoe/user_state.json"
    bad.parent.mkdir()
    bad.write_text(state if isinstance(state, str) else json.dumps(state))
    capsys.readouterr()
    human_eval("import", "project")
    said = capsys.readouterr()
    assert f"zoe/user_state.json, is skipped: {reason}" in said.err
    assert json.loads(said.out)["answers"] == len(ANSWERS)


def test_people_without_an_address_have_their_numbers_and_no_time_is_too_long(store, tmp_path, capsys):
    (task, *_) = json.loads((FILES / "label_studio.json").read_text())
    for number in (5, 6):
        changed = change(task, ("annotations", 0, "completed_by"), {"id": number})
        changed = change(changed, ("annotations", 0, "lead_time"), 10**400)
        (tmp_path / "export.json").write_text(json.dumps([changed]))
        human_eval("import", "export.json")
        assert json.loads(capsys.readouterr().out)["answers"] == 1


@pytest.mark.parametrize("later", ["2999-11-27T00:30:00+02:00", "2999-11-26T23:59:59Z"])
def test_the_latest_answer_of_a_person_stays_whichever_export_comes_last(later, store, tmp_path, capsys):
    tasks = json.loads((FILES / "label_studio.json").read_text())
    earlier = change(tasks[1], ("annotations", 0, "updated_at"), "2999-11-26T22:29:59Z")
    changed = change(earlier, ("annotations", 0, "updated_at"), later)
    swapped = {"Speaker A": "Speaker B", "Speaker B": "Speaker A"}
    (choice,) = (one for one in changed["annotations"][0]["result"] if one["from_name"] == "preferred")
    choice["value"]["choices"] = [swapped[choice["value"]["choices"][0]]]
    answers = []
    for content in ([tasks[0], earlier], [changed], [earlier]):
        (tmp_path / "export.json").write_text(json.dumps(content))
        human_eval("import", "export.json")
        answers.append(judged(store))
    assert answers[0] != answers[1] == answers[2]
    assert store.judgements()[0].ended.endswith("+00:00")
    human_eval("forget", "--older-than", 1)  # who began before that, and has answered since, is not forgotten
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"forgotten": 0, "answers": 0}


@pytest.mark.parametrize(
    "settings",
    ["x: !!timestamp abc", "x: !!int ''", None, "- 1", "a: [", "annotation_schemes: []", "x: " + "[" * 10_000, b"\xff"],
)
def test_another_folder_is_no_project(settings, store, tmp_path):
    (tmp_path / "folder").mkdir()
    if settings is not None:
        (tmp_path / "folder/config.yaml").write_bytes(settings if isinstance(settings, bytes) else settings.encode())
    with pytest.raises(InputError, match="folder is not a folder of human_eval export --to potato"):
        human_eval("import", "folder")


@pytest.mark.parametrize("tool", ["potato", "label_studio"])
def test_a_project_can_be_exported_again_and_never_over_other_files(tool, store, tmp_path):
    for _ in range(2):
        human_eval("export", "--to", tool, "--out", "project")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    with pytest.raises(InputError, match=r"mine holds other files, such as thesis\.txt"):
        human_eval("export", "--to", tool, "--out", "mine")
    with pytest.raises(InputError, match="--question 'nicest' is not a question"):
        human_eval("export", "--to", tool, "--out", "project", "--question", "nicest")


def test_a_project_with_answers_keeps_its_question(store, tmp_path):
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    human_eval("export", "--to", "potato", "--out", "project", "--question", "humanlike")  # nobody has answered
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    shutil.copytree(FILES / "annotation_output", tmp_path / "project/annotation_output")
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    with pytest.raises(InputError, match=r"project has answers to .*give another --out for another --question"):
        human_eval("export", "--to", "potato", "--out", "project", "--question", "humanlike")
    human_eval("import", "project")
    assert {one.question for one in store.judgements()} == {QUESTION}


# ---- the tools themselves, in Chromium -------------------------------------------------------------------------------


@contextlib.contextmanager
def started(command, environment, port, folder):
    """A tool that answers on a port."""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                    break
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def keep(path, name):
    """Keep what a tool wrote for the fast tests, if the caller asks."""
    if folder := os.environ.get("POLYAGENTS_TOOL_FILES"):
        Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, Path(folder, name))


@pytest.mark.browser
def test_people_judge_in_potato(store, page, tmp_path, capsys):
    human_eval("export", "--to", "potato", "--out", "project", "--question", QUESTION)
    potato = Path(installed(POTATO, tmp_path / "environment")).with_name("potato")
    port = free_port()
    command = [potato, "start", tmp_path / "project/config.yaml", "-p", str(port), "--host", "127.0.0.1"]
    with started(command, {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, port, tmp_path) as url:
        page.goto(url)
        page.fill("input[name=email] >> visible=true", "ann")
        page.click("button[type=submit] >> visible=true")
        for place, (speaker, reason) in enumerate(ANSWERS, 1):
            page.wait_for_selector(f"text=#{place}")
            for said in (QUESTION, "<script>"):  # as a person sees them, once the page has been loaded
                expect(page.locator("body")).to_contain_text(said, use_inner_text=True)
            assert not any(model in page.inner_text("body") for model in MODELS)
            page.check(f"input[type=radio][value='{speaker}']")
            if reason:
                page.fill("textarea >> visible=true", reason)
            page.wait_for_timeout(1_000)  # it saves by itself, a moment later
            page.click("text=Next >> visible=true")
        page.wait_for_selector("text=You have completed the annotation task")
    assert page.title() != "broken"
    assert printed(capsys, "import", "project")["answers"] == len(ANSWERS)
    assert judged(store) == expected(store)
    state = "annotation_output/ann/user_state.json"
    keep(tmp_path / "project" / state, state)


@pytest.mark.browser
def test_people_judge_in_label_studio(store, page, tmp_path, capsys):
    human_eval("export", "--to", "label_studio", "--out", "project", "--question", QUESTION)
    program = Path(installed(LABEL_STUDIO, tmp_path / "environment")).with_name("label-studio")
    environment = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "LABEL_STUDIO_BASE_DATA_DIR": str(tmp_path / "data"),
        "LATEST_VERSION_CHECK": "false",
        "COLLECT_ANALYTICS": "false",
        "SENTRY_DSN": "",
    }
    port = free_port()
    account = ["--username", "ann@example.org", "--password", "not a secret"]
    interface = tmp_path / "project/label_config.xml"
    subprocess.run(
        [program, "init", "pairs", "--label-config", interface, *account], env=environment, cwd=tmp_path, check=True
    )
    command = [program, "start", "pairs", "-p", str(port), "--internal-host", "127.0.0.1", "-b", *account]
    with started(command, environment, port, tmp_path) as url:
        page.goto(f"{url}/user/login/")
        page.fill("input[name=email]", account[1])
        page.fill("input[name=password]", account[3])
        page.click("button[type=submit]")
        page.wait_for_url(f"{url}/")
        (project,) = page.request.get(f"{url}/api/projects").json()["results"]
        cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
        tasks = (tmp_path / "project/tasks.json").read_bytes()
        sent = page.request.post(
            f"{url}/api/projects/{project['id']}/import",
            multipart={"file": {"name": "tasks.json", "mimeType": "application/json", "buffer": tasks}},
            headers={"X-CSRFToken": cookies["csrftoken"], "Referer": url},
        )
        assert sent.status == 201 and sent.json()["task_count"] == len(ANSWERS)
        page.goto(f"{url}/projects/{project['id']}/data?labeling=1")
        for place, (speaker, reason) in enumerate(ANSWERS, 1):
            page.wait_for_selector(f"text={place} of {place}")
            expect(page.locator("body")).to_contain_text(QUESTION)
            page.click(f"text={speaker}[{1 + (speaker == 'Speaker B')}]")
            if reason:
                page.fill("textarea >> visible=true", reason)
                page.keyboard.press("Shift+Enter")
            page.wait_for_timeout(500)
            page.click("button:has-text('Submit') >> visible=true")
        page.wait_for_timeout(3_000)
        export = page.request.get(f"{url}/api/projects/{project['id']}/export?exportType=JSON")
        (tmp_path / "label_studio.json").write_bytes(export.body())
    assert page.title() != "broken"
    assert printed(capsys, "import", "label_studio.json")["answers"] == len(ANSWERS)
    assert judged(store) == expected(store)
    keep(tmp_path / "label_studio.json", "label_studio.json")
