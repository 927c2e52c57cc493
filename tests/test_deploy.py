"""deploy/: that its files agree with what `polyagents serve` takes and answers, and with each other."""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from stand import Stand, echo
from starlette.testclient import TestClient

from polyagents.benchmarks import replicas
from polyagents.commands import build_index, index, serve
from polyagents.errors import InputError
from polyagents.index.engines.urls import url_parts, without_secrets
from polyagents.serving.guard import is_loopback
from polyagents.serving.limits import WAITING
from polyagents.serving.ranking_app import create_app

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
GIVEN = {"MODEL_NAME": "M", "MODEL_FOLDER": "/models", "CANDIDATES_FILE": "/replies.txt", "TORCH_INDEX_URL": ""}
SECRETS = {"POLYAGENTS_TOKEN": "a-secret", "POSTGRES_PASSWORD": "another"}
ASKED = {
    "compose.yaml": GIVEN.keys() | SECRETS.keys(),
    "compose.folder.yaml": {"FILES_FOLDER", "POLYAGENTS_TOKEN", "TORCH_INDEX_URL"},
}
PLACES = ("folder", "engine")  # of the index, in deploy/kubernetes


def services_of(name):
    """The services of a compose file, with everything given that it asks for."""
    text = (DEPLOY / name).read_text()
    asked = set(re.findall(r"[^$]\$\{(\w+)", text))
    assert asked == ASKED[name]
    assert all(f"#   {one}=" in text for one in asked)  # the comment says what each is
    given = GIVEN | SECRETS | {"FILES_FOLDER": "/models"}
    return yaml.safe_load(re.sub(r"\$\{(\w+)[^}]*\}", lambda found: given[found[1]], text))["services"]


@pytest.fixture(scope="module", params=ASKED)
def each(request):
    """The services of each compose file."""
    return services_of(request.param)


@pytest.fixture(scope="module")
def services():
    """Those of the one with an engine."""
    return services_of("compose.yaml")


def kubernetes(*names):
    """The objects of manifests, by kind and name."""
    found = [one for name in names for one in yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def templates_of(objects):
    """What pods are made from, by the kind of what makes them."""
    specs = {kind: one["spec"] for (kind, _), one in objects.items() if "spec" in one}
    return {kind: spec["template"] for kind, spec in specs.items() if "template" in spec}


@pytest.fixture(scope="module")
def proxy():
    """The lines of haproxy.cfg, without comments and what is around them."""
    lines = (line.strip() for line in (DEPLOY / "haproxy.cfg").read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def image():
    """The Dockerfile's instructions, those on several lines put together."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def options(module, arguments):
    """What a command makes of its arguments."""
    return vars(module.parser().parse_args(arguments))


def value(lines, start):
    """The rest of the only line that begins so."""
    (found,) = [line.removeprefix(start).strip() for line in lines if line.startswith(start)]
    return found


def test_replicas_serve_all_addresses_with_a_token_from_the_environment(each, monkeypatch):
    replicas = {name: service for name, service in each.items() if name.startswith("replica")}
    assert len(replicas) == 2
    for replica in replicas.values():
        for name, text in replica["environment"].items():
            monkeypatch.setenv(name, text)
        opt = options(serve, replica["command"])
        assert not is_loopback(opt["host"]) and opt["token_file"] is None
        assert [token.secret for token in serve.tokens_of(opt).current] == ["a-secret"]
        assert opt["requests_per_minute"] > 1_000 and opt["texts_per_minute"] > 100_000  # the proxy is one client
        (mounted,) = (volume.split(":") for volume in replica["volumes"])
        assert mounted[0] == "/models" and mounted[2] == "ro" and opt["model_file"].startswith(f"{mounted[1]}/")


def test_nothing_of_ours_runs_as_root_or_writes_to_its_image(each):
    for service in each.values():
        if service["image"] == "polyagents":
            assert service["read_only"] and service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]


def test_no_secret_is_in_a_file_or_on_a_command_line(each):
    for service in each.values():
        said = [service.get(part, "") for part in ("command", "entrypoint", "volumes", "build", "healthcheck")]
        assert not any(secret in str(said) for secret in SECRETS.values())
    for file in DEPLOY.rglob("*.*"):
        if file.name != ".env":
            assert not re.search(r"(TOKEN|PASSWORD)[:=] *[\w-]{8,}", file.read_text()), file


def test_replicas_search_what_build_index_builds_in_the_engine(services):
    built = options(build_index, services["build_index"]["command"])
    urls = {options(serve, services[name]["command"])["index_url"] for name in ("replica-1", "replica-2")}
    assert urls == {built["index_url"]}
    engine, (url,) = services["engine"]["environment"], urls
    assert without_secrets(url) == f"postgresql://engine/{engine['POSTGRES_DB']}/replies"
    assert url_parts(url).username == engine["POSTGRES_USER"] and url_parts(url).password is None
    for name in ("build_index", "replica-1", "replica-2"):
        assert services[name]["environment"]["PGPASSWORD"] == engine["POSTGRES_PASSWORD"]
        assert services[name]["depends_on"] == {"engine": {"condition": "service_healthy"}}
    files = [volume.split(":")[1] for volume in services["build_index"]["volumes"]]
    assert built["candidates_file"] in files and str(Path(built["model_file"]).parent) in files
    assert services["build_index"]["entrypoint"] == ["polyagents", "build_index"]


def test_the_proxy_knows_the_replicas_by_their_names_and_ports(each, proxy):
    for name in ("replica-1", "replica-2"):
        port = options(serve, each[name]["command"])["port"]
        assert value(proxy, f"presetenv {name.replace('-', '_').upper()} ") == f"{name}:{port}"
        assert value(proxy, f"server {name} ") == f'"${name.replace("-", "_").upper()}"'
    (mounted,) = each["proxy"]["volumes"]
    assert mounted.startswith("./haproxy.cfg:") and mounted.endswith(":ro")
    (published,) = each["proxy"]["ports"]
    host, _, inside = published.split(":")
    assert is_loopback(host) and value(proxy, "presetenv LISTEN ") == f":{inside}"
    assert set(each["proxy"]["depends_on"]) == {"replica-1", "replica-2"}


def test_what_the_proxy_checks_is_answered_without_the_token(proxy):
    method, path = re.fullmatch(r"meth (\w+) uri (\S+)", value(proxy, "http-check send ")).groups()
    status = int(value(proxy, "http-check expect status "))
    stand = Stand(echo)
    with TestClient(create_app(stand, "a-secret"), "http://replica-1:8008") as client:
        assert client.request(method, path).status_code == status

    def away():
        raise RuntimeError("the engine is away")

    stand.check = away
    with TestClient(create_app(stand, "a-secret"), "http://replica-1:8008") as client:
        assert client.request(method, path).status_code != status
    most = re.search(r" maxconn (\d+) ", value(proxy, "default-server ")).group(1)
    assert int(most) < WAITING  # so that requests wait in the proxy, for either replica, and are not refused


def test_a_browser_may_be_sent_to_any_replica(proxy):
    cookies = set()
    for _ in range(2):
        with TestClient(create_app(Stand(echo), "a-secret"), "http://proxy:8000") as client:
            cookies.add(client.get("/", params={"token": "a-secret"}).cookies["polyagents_serve"])
    assert len(cookies) == 1 and not any("cookie" in line for line in proxy)


def test_the_image_installs_extras_that_there_are(image):
    (extras,) = {found for line in image for found in re.findall(r"'\.\[([\w,-]+)\]'", line)}
    assert set(extras.split(",")) == {"serve", "milvus", "postgres", "fast"}
    assert set(extras.split(",")) <= set(metadata.metadata("polyagents").get_all("Provides-Extra"))


def test_the_image_serves_where_its_probe_looks_and_its_user_is_not_root(image):
    assert value(image, "ENTRYPOINT ") == '["polyagents", "serve"]'
    port = serve.parser().get_default("port")
    assert value(image, "EXPOSE ") == str(port)
    assert value(image, "USER ").split(":")[0] not in ("0", "root")
    assert "HOME=/tmp" in [line for line in image if line.startswith("ENV ")][-1].split()  # OpenVINO needs one
    (path,) = re.findall(rf"http://127\.0\.0\.1:{port}(/\w+)", value(image, "HEALTHCHECK "))
    with TestClient(create_app(Stand(echo), "a-secret"), f"http://127.0.0.1:{port}") as client:
        assert client.get(path).status_code == 200


def test_the_images_are_of_exact_versions_and_hadolint_has_no_complaint(image):
    assert {line.split()[1] for line in image if line.startswith("FROM ")} == {"${PYTHON}"}
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", value(image, "ARG PYTHON="))
    program = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([program, DEPLOY / "Dockerfile"], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_the_images_of_others_are_of_exact_versions(each):
    images = {service["image"] for service in each.values()} - {"polyagents"}
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in images)


@pytest.mark.parametrize("place", PLACES)
def test_manifests_are_what_kubernetes_takes_and_find_each_other(place):
    objects = kubernetes(place, "replicas")
    for one in objects.values():
        kubernetes_validate.validate(one, "1.33", strict=True)
    templates = templates_of(objects).values()
    labels = [template.get("metadata", {}).get("labels") for template in templates]
    for (kind, _), one in objects.items():
        selector = one.get("spec", {}).get("selector")
        if selector:
            assert selector.get("matchLabels", selector) in labels, kind
    for pod in (template["spec"] for template in templates):
        for volume in pod["volumes"]:
            claim, config = volume.get("persistentVolumeClaim"), volume.get("configMap")
            assert claim is None or ("PersistentVolumeClaim", claim["claimName"]) in objects
            assert config is None or ("ConfigMap", config["name"]) in objects
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} >= {one["name"] for one in pod["volumes"]}


@pytest.mark.parametrize("place", PLACES)
def test_our_pods_are_not_root_write_to_tmp_only_and_get_no_variables_of_services(place):
    ours = templates_of(kubernetes(place, "replicas"))
    ours.pop("StatefulSet", None)  # PostgreSQL's
    assert ours.keys() == {"Deployment", "Job"}
    for kind, template in ours.items():
        pod = template["spec"]
        (container,) = pod["containers"]
        assert pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] and security["capabilities"] == {"drop": ["ALL"]}
        written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert written == ({"/tmp", "/files"} if (kind, place) == ("Job", "folder") else {"/tmp"})


@pytest.mark.parametrize("place", PLACES)
def test_the_replicas_of_kubernetes_serve_what_is_mounted_and_their_probes_are_answered(place, tmp_path):
    objects = kubernetes(place, "replicas")
    (container,) = objects["Deployment", "polyagents"]["spec"]["template"]["spec"]["containers"]
    (flag,) = container["args"]
    config = tmp_path / Path(flag.removeprefix("--config=")).name
    config.write_text(objects["ConfigMap", "polyagents-serve"]["data"][config.name])
    opt = options(serve, [f"--config={config}"])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    paths = [opt["model_file"], opt["token_file"], flag.removeprefix("--config="), opt["index_dir"] or "/tmp"]
    assert all(f"/{path.split('/')[1]}" in mounts for path in paths)
    assert not is_loopback(opt["host"]) and {"name": "http", "containerPort": opt["port"]} in container["ports"]
    with TestClient(create_app(Stand(echo), "a-secret"), "http://10.0.0.1:8008") as client:
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert client.get(container[name]["httpGet"]["path"]).status_code == 200
    if place == "engine":
        (build,) = objects["Job", "polyagents-build-index"]["spec"]["template"]["spec"]["containers"]
        built = options(index, [*build["command"][2:], *build["args"]])
        assert (built["index_url"], built["model_file"]) == (opt["index_url"], opt["model_file"])
        assert ("Service", url_parts(opt["index_url"]).hostname) in objects


def test_prometheus_finds_the_replicas_of_kubernetes():
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    (name,) = found["names"]
    objects = kubernetes("replicas")
    service = objects["Service", name]["spec"]
    labels = objects["Deployment", "polyagents"]["spec"]["template"]["metadata"]["labels"]
    assert service["clusterIP"] == "None" and service["selector"] == labels
    assert found["port"] == service["ports"][0]["port"] == serve.parser().get_default("port")
    assert f'up{{job="{job["job_name"]}"}}' in (DEPLOY / "alerts.yaml").read_text()
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool here; Debian's package prometheus has it")
    command = [program, "check", "config", "--syntax-only", DEPLOY / "prometheus.yaml"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_both_publish_with_the_same_script():
    (job,) = templates_of(kubernetes("folder")).values()
    _, _, script = job["spec"]["containers"][0]["command"]
    _, _, composed, name = services_of("compose.folder.yaml")["publish"]["entrypoint"]
    assert composed.replace("$$1", "$VERSION") == script and name == "publish"


def test_what_the_image_is_built_from_is_not_left_out():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert ignored[1] == "*" and all((ROOT / name).exists() for name in kept)
    setup = (ROOT / "setup.py").read_text()
    inside = re.search(r"^INSIDE = \((.*)\)$", setup, re.M).group(1)
    assert {"setup.py", "README.md", "pyproject.toml", "constraints.txt", "polyagents"} <= set(kept)
    assert {name.strip('" ') for name in inside.split(",")} <= set(kept)


def test_haproxy_takes_its_file():
    program = shutil.which("haproxy")
    if program is None:
        pytest.skip("no haproxy is installed here")
    addresses = {"REPLICA_1": "127.0.0.1:8008", "REPLICA_2": "127.0.0.1:8009"}  # the names are compose's
    checked = subprocess.run(
        [program, "-c", "-f", DEPLOY / "haproxy.cfg"], env={**os.environ, **addresses}, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr


def test_the_load_test_counts_a_request_in_the_phase_in_which_it_ended():
    phases = [replicas.Phase("both", 0, 10.0), replicas.Phase("one gone", 1, 20.0), replicas.Phase("", 5, 40.0)]
    asked = [
        replicas.TimedRequest(12.0, 100.0, 200, True),
        replicas.TimedRequest(21.0, 300.0, 200, False),
        replicas.TimedRequest(22.0, 10.0, 503, False),
        replicas.TimedRequest(22.0, 10.0, "RemoteDisconnected", False),
        replicas.TimedRequest(41.0, 100.0, 200, True),  # after the end: it was under way
    ]
    both, gone = replicas.rows_of(phases, asked)
    assert both == {"phase": "both", "s": 10.0, "answers/s": 0.1, "p50 ms": 100.0, "p95 ms": 100.0, "p99 ms": 100.0,
                    "sent": 1, "answered": 1, "lost": 0, "wrong": 0, "sent again by the proxy": 1}  # fmt: skip
    assert gone == {"phase": "one gone", "s": 20.0, "answers/s": 0.1, "p50 ms": 200.0, "p95 ms": 290.0,
                    "p99 ms": 298.0, "sent": 4, "answered": 2, "lost": 2, "wrong": 1,
                    "sent again by the proxy": 4}  # fmt: skip
    assert replicas.figures([], 1.0)["p50 ms"] is None


@pytest.mark.parametrize(
    "text, said", [(None, "none.txt cannot be read (No such file or directory)"), ("\n", "has no contexts; give one")]
)
def test_the_load_test_says_what_is_wrong_with_its_contexts(text, said, tmp_path):
    path = tmp_path / "none.txt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=re.escape(said)):
        replicas.requests_of(str(path))


def test_the_load_test_without_haproxy_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="There is no haproxy on PATH; install HAProxy"):
        replicas.haproxy()
