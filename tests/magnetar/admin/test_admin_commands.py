"""`magnetar admin GROUP COMMAND` against a running broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar.admin.output import shown
from magnetar.commands.admin_command import main
from magnetar.commands.completion import main as completion
from tests.interop.support import connect, publish
from tests.vectors.broker_process import Addresses, BrokerProcess

ROOT = Path(__file__).resolve().parents[3]
Admin = Callable[..., str]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {}, memory=True) as broker:
        yield broker.addresses


@pytest.fixture(scope="module")
def url(addresses: Addresses) -> str:
    return addresses.admin


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


def test_session_of_messages(admin: Admin, addresses: Addresses, capsys: pytest.CaptureFixture[str]) -> None:
    admin("topics create-subscription read -s s -m earliest -p k=v")
    assert json.loads(admin("topics get-subscription-properties read -s s")) == {"k": "v"}
    admin("topics update-subscription-properties read -s s --clear")
    assert json.loads(admin("topics get-subscription-properties read -s s")) == {}
    client = connect(addresses.pulsar)
    publish(client.create_producer("read", batching_enabled=False), [b"first"])
    publish(
        client.create_producer("read", batching_enabled=True, batching_max_publish_delay_ms=60_000),
        [b"a", b"b"],
    )
    client.close()
    capsys.readouterr()
    text = admin("topics peek-messages read -s s -n 5")
    assert re.findall(r"(?:Batch )?Message ID: \d+:(\S+)", text) == ["0", "1:0", "1:1"]
    assert re.findall(r"\|(\w+) +\|", text) == ["first", "a", "b"]
    assert admin("topics examine-messages read -i earliest").startswith("Message ID: ")
    place = json.loads(admin("topics get-message-id read -d 2026-01-01T00:00:00Z"))
    shown_one = admin(f"topics get-message-by-id read -l {place['ledgerId']} -e {place['entryId']}")
    assert "|first " in shown_one
    assert json.loads(admin("topics analyze-backlog read -s s"))["messages"] == 3
    admin("topics compact read")
    assert json.loads(admin("topics compaction-status read --wait-complete"))["status"] == "SUCCESS"
    assert json.loads(admin("topics offload-status read"))["status"] == "NOT_RUN"
    assert admin("topics offload read -s 1M") == "Nothing to offload\n"
    admin("persistent skip-all read -s s")
    assert json.loads(admin("persistent stats read"))["subscriptions"]["s"]["msgBacklog"] == 0
    admin("topics reset-cursor read -s s -m earliest --exclude-reset-position")


def test_session_of_partitions_and_bundles(admin: Admin, tmp_path: Path) -> None:
    admin("namespaces create public/many -b 4")
    admin("topics create-partitioned-topic public/many/p -p 2 -m a=b")
    assert json.loads(admin("topics get-properties public/many/p")) == {"a": "b"}
    lookups = admin("topics partitioned-lookup public/many/p").splitlines()
    assert [line.split()[0][-1] for line in lookups] == ["0", "1"]
    assert "p-partition-0, persistent" in admin("topics partitioned-lookup public/many/p -s")
    admin("namespaces split-bundle public/many --bundle-type LARGEST")
    admin("namespaces set-schema-autoupdate-strategy public/many --disabled")
    assert admin("namespaces get-schema-autoupdate-strategy public/many") == "AutoUpdateDisabled\n"
    assert admin("namespaces get-offload-threshold public/many").startswith("offloadThresholdInBytes: ")
    for name in ("x1", "x2", "y"):
        admin(f"topics create public/many/{name}")
    admin("topics delete -r persistent://public/many/x.*")
    names = tmp_path / "names"
    names.write_text("persistent://public/many/y\n")
    admin(f"topics delete --from-file {names}")
    assert [line[-1] for line in admin("topics list public/many").splitlines()] == ["0", "1"]
    assert "(*)" in admin("clusters list --current")
    assert "\n" in admin("broker-stats topics -i").strip()
    assert "proxy-stats topics" in admin("documents generate proxy-stats")


def test_session_of_policies_of_the_cluster(admin: Admin) -> None:
    policy = "--auto-failover-policy-type min_available --auto-failover-policy-params min_limit=1,usage_threshold=80"
    admin(f"ns-isolation-policy set standalone one --namespaces acme/.* --primary .* {policy}")
    assert json.loads(admin("ns-isolation-policy get standalone one"))["secondary"] == []
    admin("resource-quotas set -mi 1 -mo 2 -bi 3 -bo 4 -mem 5")
    assert json.loads(admin("resource-quotas get"))["memory"] == 5
    admin("clusters create west --url http://west:8080 --tls-enable")
    assert json.loads(admin("clusters get west"))["brokerClientTlsEnabled"] is True
    assert "public" in admin("properties list").splitlines()


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
        ("functions localrun", 2, "functions localrun is not built"),
        ("functions list", 1, "Function Worker is not enabled"),
        ("functions get", 1, "give --name"),
        ("functions get --fqfn a/b", 1, "not of the form TENANT/NAMESPACE/NAME"),
        (
            "packages get-metadata function://public/default/f@v1",
            1,
            "Package Management Service is not enabled",
        ),
        ("packages delete f", 1, "'f' is no package"),
        (
            "packages upload function://public/default/f@v1 --description d --path none",
            1,
            "none cannot be read",
        ),
        ("topics partitioned-lookup alone", 1, "alone not found"),
        ("topics delete -r persistent://public/default/(", 1, "is no pattern"),
        ("topics get-message-id t -d yesterday", 1, "'yesterday' is no time"),
        ("tenants forget", 2, "tenants has no command 'forget'"),
        ("nothing at all", 2, "unknown group 'nothing'"),
        ("audit", 2, "write `magnetar admin audit` first, then its options"),
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


def test_command_starts_without_aiohttp(url: str) -> None:
    code = (
        "import sys\nfrom magnetar.__main__ import main\n"
        f"status = main(['admin', '--admin-url', {url!r}, 'tenants', 'list'])\n"
        "sys.exit('imported aiohttp' if 'aiohttp' in sys.modules else status)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "public" in done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("magnetar admin tenants cr", "create"),
        ("magnetar admin au", "audit"),
        ("magnetar admin sn", "snapshot"),
        ("magnetar metadata ve", "verify"),
    ],
)
def test_bash_completes_groups_and_commands(
    capsys: pytest.CaptureFixture[str], words: str, completed: str
) -> None:
    assert completion(["bash"]) == 0
    script = capsys.readouterr().out
    last = len(words.split()) - 1
    ask = f"COMP_WORDS=({words}); COMP_CWORD={last}; _magnetar; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == f"{completed}\n"


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
