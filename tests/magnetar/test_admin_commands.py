"""`magnetar admin GROUP COMMAND` against a running broker, and its table against Pulsar's routes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from broker.admin.http.pulsar_routes import path_shapes, pulsar_routes
from magnetar.admin.output import shown
from magnetar.admin.requests import body_of, path_of
from magnetar.admin.table import Command, commands
from magnetar.admin.values import minutes, position, seconds, size, topic_path
from magnetar.clients.client import CommandError
from magnetar.commands.admin_command import main
from magnetar.commands.completion import main as completion
from tests.vectors.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
BUILT = [command for group in commands().values() for command in group.values() if command.built]
PARTS = {
    "{topic}": "persistent/{tenant}/{namespace}/{topic}",
    "{namespace}": "{tenant}/{namespace}",
    "{schema}": "{tenant}/{namespace}/{topic}",
    "{topic-domain}": "persistent",
}
Admin = Callable[..., str]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}, memory=True) as broker:
        yield broker.addresses.admin


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client.conf is near."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULSAR_CLIENT_CONF", raising=False)


@pytest.fixture
def admin(url: str, capsys: pytest.CaptureFixture[str]) -> Admin:
    """Runs one line of words, which must succeed, and returns the output."""

    def call(line: str) -> str:
        status = main(["--admin-url", url, *line.split()])
        captured = capsys.readouterr()
        assert (status, captured.err) == (0, ""), line
        return captured.out

    return call


@pytest.mark.parametrize("command", BUILT, ids=lambda one: f"{one.group}-{one.name}")
def test_request_of_every_command_is_one_of_pulsar(command: Command) -> None:
    parts = command.path.partition("?")[0].split("/")
    path = "/".join(PARTS.get(part, part) for part in parts)
    shape = re.sub(r"\{[^{}]*\}", "{}", path)
    known = {
        (route.method, re.sub(r"\{[^{}]*\}", "{}", one))
        for route in pulsar_routes()
        for one in (route.path, *path_shapes(route.path))
    }
    ending = {
        shape,
        shape.replace("/{}/clearBacklog", "/clearBacklog"),
        shape.replace("/persistent/", "/{}/"),
    }
    assert any((command.method, one) in known for one in ending), (command.method, shape)


@pytest.mark.parametrize("command", BUILT, ids=lambda one: f"{one.group}-{one.name}")
def test_every_command_has_help(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([command.group, command.name, "--help"])
    assert stopped.value.code == 0
    assert f"magnetar admin {command.group} {command.name}" in capsys.readouterr().out


def test_session_of_tenants_namespaces_and_topics(admin: Admin) -> None:
    assert admin("tenants create acme --admin-roles root,ops") == ""
    assert json.loads(admin("tenants get acme")) == {
        "adminRoles": ["root", "ops"],
        "allowedClusters": ["standalone"],
    }
    assert "acme" in admin("tenants list").splitlines()
    assert admin("namespaces create acme/web -b 8") == ""
    assert admin("namespaces list acme") == "acme/web\n"
    assert len(json.loads(admin("namespaces bundles acme/web"))["boundaries"]) == 9
    assert admin("topics create acme/web/clicks") == ""
    assert admin("topics create-partitioned-topic persistent://acme/web/parted -p 3") == ""
    assert json.loads(admin("topics get-partitioned-topic-metadata acme/web/parted"))["partitions"] == 3
    assert "persistent://acme/web/clicks" in admin("topics list acme/web").splitlines()
    assert admin("topics create-subscription acme/web/clicks -s sub -m earliest") == ""
    assert admin("topics subscriptions acme/web/clicks") == "sub\n"
    assert admin("topics reset-cursor acme/web/clicks -s sub -t 5m") == ""
    assert admin("topics skip acme/web/clicks -s sub -n 0") == ""
    assert "sub" in json.loads(admin("topics stats acme/web/clicks -gpb"))["subscriptions"]
    assert admin("topics unsubscribe acme/web/clicks -s sub") == ""
    assert admin("topics lookup acme/web/clicks").startswith("pulsar://")
    assert admin("topics unload acme/web/clicks") == ""
    assert admin("topics delete acme/web/clicks -f") == ""
    assert admin("topics delete-partitioned-topic acme/web/parted") == ""
    assert admin("namespaces delete acme/web") == ""
    assert admin("tenants delete acme") == ""


def test_session_of_policies(admin: Admin) -> None:
    place = "public/default"
    assert admin(f"namespaces set-retention {place} -t 3h -s 2G") == ""
    assert json.loads(admin(f"namespaces get-retention {place}")) == {
        "retentionTimeInMinutes": 180,
        "retentionSizeInMB": 2048,
    }
    assert admin(f"namespaces remove-retention {place}") == ""
    assert admin(f"namespaces get-retention {place}") == "null\n"
    assert admin(f"namespaces set-message-ttl {place} -ttl 1m") == ""
    assert admin(f"namespaces get-message-ttl {place}") == "60\n"
    assert admin(f"namespaces set-deduplication {place} --enable") == ""
    assert admin(f"namespaces get-deduplication {place}") == "true\n"
    assert admin(f"namespaces remove-deduplication {place}") == ""
    assert admin("topics create limited") == ""
    assert admin("topicPolicies set-max-producers limited -p 7") == ""
    assert admin("topicPolicies get-max-producers limited") == "7\n"
    assert admin("topics get-max-producers limited -ap") == "7\n"
    assert admin("topicPolicies set-dispatch-rate limited -md 100 -dt 2") == ""
    assert json.loads(admin("topicPolicies get-dispatch-rate limited"))["dispatchThrottlingRateInMsg"] == 100
    assert admin("topicPolicies set-backlog-quota limited -l 10M -p producer_exception") == ""
    quota = json.loads(admin("topicPolicies get-backlog-quota limited"))["destination_storage"]
    assert (quota["limitSize"], quota["policy"]) == (10 << 20, "producer_exception")


def test_session_of_clusters_brokers_and_schemas(admin: Admin, tmp_path: Path) -> None:
    assert "standalone" in admin("clusters list").splitlines()
    assert "serviceUrl" in json.loads(admin("clusters get standalone"))
    assert ":" in admin("brokers list standalone")
    assert admin("brokers healthcheck") == "ok\n"
    assert admin("brokers update-dynamic-config -c managedLedgerCacheSizeMB -v 32") == ""
    assert json.loads(admin("brokers get-all-dynamic-config")) == {"managedLedgerCacheSizeMB": "32"}
    assert admin("brokers delete-dynamic-config -c managedLedgerCacheSizeMB") == ""
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "STRING", "schema": "", "properties": {}}')
    assert admin("topics create typed") == ""
    assert json.loads(admin(f"schemas upload typed -f {schema}")) == {"version": {"version": 0}}
    assert json.loads(admin("schemas get typed"))["type"] == "STRING"
    assert json.loads(admin("schemas get typed -v 0"))["version"] == 0


def test_output_is_json_or_a_table(admin: Admin) -> None:
    assert "public" in json.loads(admin("tenants list -o json"))
    rows = dict(line.split(None, 1) for line in admin("-o table tenants get public").splitlines())
    assert set(rows) == {"adminRoles", "allowedClusters"}


def test_objects_are_printed_as_by_pulsar_admin(admin: Admin) -> None:
    assert shown({"a": [], "b": {"c": ["x", 1]}, "d": {}}, "") == (
        '{\n  "a" : [ ],\n  "b" : {\n    "c" : [ "x", 1 ]\n  },\n  "d" : { }\n}'
    )
    assert (
        admin("tenants get public") == '{\n  "adminRoles" : [ ],\n  "allowedClusters" : [ "standalone" ]\n}\n'
    )


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("tenants get nowhere", 1, "does not exist"),
        ("topics stats x://y", 1, "'x://y' is no topic"),
        ("namespaces policies default", 1, "'default' is no namespace"),
        ("namespaces set-retention public/default -t soon -s 1", 1, "'soon' is no time"),
        ("brokers delete-dynamic-config -c ..", 1, "cannot be a part of a path"),
        ("functions list", 2, "functions list is not built"),
        ("tenants forget", 2, "tenants has no command 'forget'"),
        ("nothing at all", 2, "unknown group 'nothing'"),
    ],
)
def test_failure_is_one_clear_line(
    url: str, capsys: pytest.CaptureFixture[str], line: str, status: int, text: str
) -> None:
    assert main(["--admin-url", url, *line.split()]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err.splitlines()[0]


def test_both_or_neither_switch_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for switches in ([], ["--enable", "--disable"]):
        with pytest.raises(SystemExit) as stopped:
            main(["namespaces", "set-deduplication", "public/default", *switches])
        assert stopped.value.code == 2
    assert "--enable" in capsys.readouterr().err


def test_units_are_those_of_pulsar_admin() -> None:
    assert [seconds(text) for text in ("10", "10s", "5m", "3h", "2d", "1w", "-1")] == [
        10, 10, 300, 10_800, 172_800, 604_800, -1
    ]  # fmt: skip
    assert [size(text) for text in ("10", "2k", "3M", "1G", "1T")] == [10, 2048, 3 << 20, 1 << 30, 1 << 40]
    assert [minutes(text) for text in ("90", "1h", "-1")] == [1, 60, -1]
    assert position("3:-1") == {"ledgerId": 3, "entryId": -1, "partitionIndex": -1}
    with pytest.raises(CommandError):
        size("1X")


def test_names_are_encoded_and_missing_parts_are_left_out() -> None:
    assert topic_path("a?b") == "persistent/public/default/a%3Fb"
    assert topic_path("non-persistent://t/n/a/b") == "non-persistent/t/n/a%2Fb"
    values = {"namespace": None, "bundle": None, "force": False, "mode": "A&B"}
    assert path_of("/q/{namespace}/{bundle}?force={force}&mode={mode}", values) == "/q?mode=A%26B"
    assert body_of('{"a":"$x","b":{"c":"$y"}}', {"x": 1, "y": None}) == b'{"a": 1, "b": {}}'
    assert body_of('"$x"', {"x": None}) is None


def test_command_starts_without_aiohttp(url: str) -> None:
    code = (
        "import sys\nfrom magnetar.__main__ import main\n"
        f"status = main(['admin', '--admin-url', {url!r}, 'tenants', 'list'])\n"
        "sys.exit('imported aiohttp' if 'aiohttp' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "public" in done.stdout.splitlines()


def test_bash_completes_groups_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert completion(["bash"]) == 0
    script = capsys.readouterr().out
    ask = "COMP_WORDS=(magnetar admin tenants cr); COMP_CWORD=3; _magnetar; echo ${COMPREPLY[@]}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "create\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion([shell]) == 0
    assert "create-partitioned-topic" in capsys.readouterr().out


def test_commands_of_the_how_to_work(admin: Admin) -> None:
    page = (ROOT / "docs/how-to/administer.md").read_text(encoding="utf-8")
    lines = [
        line.removeprefix("magnetar admin ")
        for line in page.splitlines()
        if line.startswith("magnetar admin ")
    ]
    here = [line for line in lines if "--admin-url" not in line]
    assert len(here) == 12
    for line in here:
        admin(line)


@pytest.mark.parametrize("output", ["", "table", "json"])
def test_names_that_clients_chose_cannot_drive_a_terminal(output: str) -> None:
    evil = "a\x1b]0;title\x07\nb\u202e\x9b2J"
    text = shown([evil, "c"], output)
    assert not set("\x1b\x07\x9b\u202e") & set(text)
    if output != "json":
        assert text.splitlines() == [r"a\x1b]0;title\x07\nb\u202e\x9b2J", "c"]
    assert ("\n" in shown("one\ntext\x1b", output)) is (output == "")
