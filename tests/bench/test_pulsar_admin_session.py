"""The comparison of two sessions of Apache's command-line tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pulsar_admin.compare import CLUSTER_REASONS, REASONS, compared, differences, reasons
from bench.pulsar_admin.page import page, summary
from bench.pulsar_admin.session import CLUSTER_COMMANDS, COMMANDS, Broker, Outcome, expanded

HERE = Broker("http://127.0.0.1:1080", "pulsar://127.0.0.1:1650", "127.0.0.1:1080")
THERE = Broker("http://127.0.0.1:2080", "pulsar://localhost:2650/", "localhost:2080")


def unlike(here: str, there: str, command: str = "admin tenants get t") -> list[str]:
    return differences(Outcome(command, here), Outcome(command, there), (HERE, THERE))


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ('{"a": 1, "b": ["x", "y"]}', '{"b": ["y", "x"], "a": 1}'),
        ('{"serviceUrl": "http://127.0.0.1:1080"}', '{"serviceUrl": "http://localhost:2080"}'),
        ('{"msgRateIn": 1.5, "lastLedger": 3}', '{"msgRateIn": 0, "lastLedger": 9}'),
        ("done at 3:7 pulsar://127.0.0.1:1650", "done at 12:7 pulsar://localhost:2650/"),
        ("r    [produce, consume]", "r    [consume, produce]"),
        ("Published at 2026-11-22T01:02:03.004Z", "Published at 2026-11-23T04:05:06Z"),
        ("b\na", "a\nb\n\nGoodbye!"),
        ("Nov 30, 2026 2:35:43 PM io.a.B c\nd", "Nov 30, 2026 12:36:14 AM io.a.B c\nd"),
        ("failed\n\nStacktrace:\n\n\tat x(Y.java:1)", "failed"),
    ],
)
def test_outputs_are_alike_but_for_addresses_times_and_order(here: str, there: str) -> None:
    assert unlike(here, there) == []


@pytest.mark.parametrize(
    ("here", "there", "text"),
    [
        ('{"a": 1}', '{"a": 2}', "`a` 1, there 2"),
        ('{"a": {"b": 1}}', '{"a": {}}', "`a.b` only here"),
        ('{"a": [1]}', '{"a": []}', "`a` has 1 elements, there 0"),
        ("false", "true", "`answer` False, there True"),
        ("same\nmine", "same", "`mine`, there `(nothing)`"),
        ("at 3:7", "at 3:8", "`at <ledger>:7`, there `at <ledger>:8`"),
    ],
)
def test_a_difference_is_named(here: str, there: str, text: str) -> None:
    assert unlike(here, there) == [text]


def test_pulsar_perf_is_compared_by_its_records() -> None:
    line = "10:00:00,123 stats --- {} records sent --- 9 msg/s"
    command = "perf produce t --num-messages 2000"
    assert unlike(line.format(2010), line.format(3060), command) == []
    assert unlike(line.format(2010), line.format(1999), command) != []
    assert unlike(line.format(2010), "no connection", command) != []


def test_page_has_a_row_for_each_command_and_a_reason_for_each_difference() -> None:
    here = [Outcome("admin brokers version", "1"), Outcome("client produce t", "Reason: no")]
    there = [Outcome("admin brokers version", "2"), Outcome("client produce t", "Reason: no")]
    rows = compared(here, there, (HERE, THERE))
    text = page(rows)
    assert "2 commands: 1 outputs are the same, 1 differ." in text
    assert (
        "| `admin brokers version` | no | `answer` 1, there 2. Each broker names its own version. |" in text
    )
    assert "| `client produce t` | yes | both refuse |" in text
    assert "| `client produce t` | no |" in summary(here)


@pytest.mark.parametrize(("commands", "known"), [(COMMANDS, REASONS), (CLUSTER_COMMANDS, CLUSTER_REASONS)])
def test_each_reason_fits_a_command_of_the_session(commands: Path, known: Path) -> None:
    lines = commands.read_text(encoding="utf-8").splitlines()
    assert [pattern.pattern for pattern, _ in reasons(known) if not any(map(pattern.search, lines))] == []


def cluster(port: int) -> Broker:
    first, second = (
        (f"http://{host}:{number}", f"pulsar://{host}:{number + 100}", f"{host}:{number}")
        for host, number in (("localhost", port), ("127.0.0.1", port + 1))
    )
    return Broker(*first, "c", Broker(*second, "c"))


def test_commands_of_a_cluster_name_the_broker_that_they_ask(tmp_path: Path) -> None:
    text = "admin@other brokers namespaces {cluster} --url {leader} --host {other.host} {schema}"
    assert expanded(text, cluster(8080), tmp_path) == (
        "admin --admin-url http://127.0.0.1:8081 brokers namespaces c --url localhost:8080 --host 127.0.0.1"
        f" {tmp_path}/schema.json"
    )
    assert expanded("client produce t", cluster(8080), tmp_path) == "client produce t"


def test_outputs_of_clusters_are_alike_when_they_name_the_same_broker() -> None:
    here, there = cluster(8080), cluster(9080)

    def unlike_there(output: str) -> list[str]:
        command = "admin@leader topics lookup t"
        first = Outcome(command, "owner [http://localhost:8080, 127.0.0.1:8081]")
        return differences(first, Outcome(command, output), (here, there))

    assert unlike_there("owner [127.0.0.1:9081, localhost:9080]") == []
    assert unlike_there("owner [127.0.0.1:9081, 127.0.0.1:9081]") != []


def test_page_of_clusters_has_the_differences_alone() -> None:
    here, there = (
        [Outcome("admin@leader brokers version", text), Outcome("admin@leader tenants list", "t")]
        for text in ("1", "2")
    )
    text = page(compared(here, there, (cluster(8080), cluster(9080))), of_clusters=True)
    assert "2 commands: 1 outputs are the same, 1 differ." in text
    assert (
        "| `admin@leader brokers version` | no | `answer` 1, there 2. Each broker names its own version. |"
        in text
    )
    assert "| `admin@leader tenants list`" not in text
