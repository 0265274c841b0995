"""The compose round as a test; the files that it needs are checked without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.compose import cluster_round
from tests.compose.__main__ import main, missing_engine

ROOT = Path(__file__).resolve().parents[2]
FILES = ("docker-compose.yml", cluster_round.FILE)
BOARDS = sorted((ROOT / "conf" / "grafana" / "boards").glob("*.json"))


@pytest.mark.peer
@pytest.mark.slow
def test_messages_survive_compose_down_and_up() -> None:
    reason = missing_engine()
    if reason is not None:
        pytest.skip(reason)
    assert main([]) == 0


@pytest.mark.peer
@pytest.mark.slow
def test_messages_survive_the_kill_of_one_of_three_brokers() -> None:
    reason = missing_engine()
    if reason is not None:
        pytest.skip(reason)
    assert cluster_round.main([]) == 0


def test_boards_name_the_provisioned_data_source() -> None:
    source = (ROOT / "conf/grafana/provisioning/datasources/prometheus.yml").read_text()
    assert "uid: prometheus\n" in source
    assert [path.stem for path in BOARDS] == [
        "bookie",
        "broker-cache",
        "cluster",
        "lessons",
        "magnetar",
        "rereplication",
        "topics",
    ]
    for path in BOARDS:
        board = json.loads(path.read_text())
        assert board["uid"] == path.stem
        for panel in board["panels"]:
            assert panel["datasource"]["uid"] == "prometheus"
            assert all(target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("file", FILES)
def test_compose_file_is_valid(file: str) -> None:
    """As YAML, and by `docker compose config` where that is installed, which asks no engine."""
    services = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["services"]
    for name, service in services.items():
        assert "image" in service or "build" in service, name
        assert set(service.get("depends_on", {})) <= set(services), name
    docker = shutil.which("docker")
    if (
        docker
        and not subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode
    ):
        config = subprocess.run(
            [docker, "compose", "-f", file, "config", "--quiet"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert config.returncode == 0, config.stderr


@pytest.mark.parametrize(
    ("file", "ports"),
    [(FILES[0], "6650 8080 9090 3000"), (FILES[1], "6650 8080 6651 8081 6652 8082 9090")],
)
def test_ports_are_published_on_the_loopback_only(file: str, ports: str) -> None:
    text = (ROOT / file).read_text()
    published = re.findall(r'^ +- "(.*:\d+)"$', text, re.M)
    assert [port.rpartition(":")[2] for port in published] == ports.split()
    assert all(port.startswith("127.0.0.1:${MAGNETAR_") for port in published)


def test_brokers_of_the_cluster_are_scraped_and_tell_clients_of_this_machine_its_ports() -> None:
    services = yaml.safe_load((ROOT / cluster_round.FILE).read_text(encoding="utf-8"))["services"]
    config = yaml.safe_load((ROOT / "conf/prometheus.cluster.yml").read_text(encoding="utf-8"))
    scraped = {
        job["job_name"]: [group["targets"][0] for group in job["static_configs"]]
        for job in config["scrape_configs"]
    }
    names = [name for name in services if name.startswith("broker-")]
    assert len(names) == 3
    settings = {name: services[name]["environment"] for name in names}
    assert scraped["broker"] == [f"{name}:{settings[name]['webServicePort']}" for name in names]
    assert scraped["bookie"] == [f"{name}:8000" for name in services if name.startswith("bookie-")]
    for name in names:
        port, published = settings[name]["brokerServicePort"], services[name]["ports"][0]
        assert published.endswith(f":-{port}}}:{port}")
        host_port = published.removeprefix("127.0.0.1:").removesuffix(f":{port}")
        listeners = f"internal:pulsar://{name}:{port},external:pulsar://127.0.0.1:{host_port}"
        assert settings[name]["advertisedListeners"] == listeners


def test_image_listens_on_the_containers_addresses() -> None:
    """On the loopback of the container no published port would lead anywhere."""
    command = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if "bindAddress=" in line)
    expression = command.split("'")[1]
    for name in ("broker", "standalone", "bookkeeper"):
        conf = (ROOT / f"conf/{name}.conf").read_text()
        changed = subprocess.run(
            ["sed", expression], input=conf, capture_output=True, text=True, check=True
        ).stdout
        assert "\nbindAddress=127.0.0.1\n" in conf
        assert "\nbindAddress=0.0.0.0\n" in changed


def environment_of_grafana(tmp_path: Path, **given: str) -> dict[str, str]:
    """Returns the variables of Grafana that its start script leaves to the image's own start."""
    start = tmp_path / "run.sh"
    start.write_text("#!/bin/sh\nexec env\n")
    start.chmod(0o755)
    words = ["/bin/sh", str(ROOT / "conf/grafana/start"), str(start)]
    done = subprocess.run(
        words, env={"PATH": os.environ["PATH"], **given}, capture_output=True, text=True, check=True
    )
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if name.startswith("GF_")}


@pytest.mark.parametrize("given", [{}, {"GF_SECURITY_ADMIN_PASSWORD": ""}])
def test_grafana_has_no_administrator_without_a_password(tmp_path: Path, given: dict[str, str]) -> None:
    assert environment_of_grafana(tmp_path, **given) == {
        "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
        "GF_AUTH_DISABLE_LOGIN_FORM": "true",
        "GF_AUTH_BASIC_ENABLED": "false",
    }


def test_grafana_has_an_administrator_with_the_password_that_is_given(tmp_path: Path) -> None:
    given = {"GF_SECURITY_ADMIN_PASSWORD": "four words of one"}
    assert environment_of_grafana(tmp_path, **given) == given


def test_anonymous_user_of_grafana_only_looks() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert re.findall(r"GF_AUTH_ANONYMOUS_ORG_ROLE: (\w+)", text) == ["Viewer"]
    assert re.findall(r"GF_SECURITY_ADMIN_PASSWORD: (.*)", text) == ["${MAGNETAR_GRAFANA_PASSWORD:-}"]
    assert 'entrypoint: ["/bin/sh", "/etc/grafana/start"]' in text


def test_scrape_jobs_have_the_names_that_stock_boards_use() -> None:
    config = (ROOT / "conf/prometheus.yml").read_text()
    for text in ("job_name: broker", "job_name: bookie", "kubernetes_pod_name:", "honor_labels: true"):
        assert text in config
