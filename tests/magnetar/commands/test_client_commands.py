"""`produce`, `consume` and `perf` without a broker: flags, printed lines and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from magnetar.clients.client import CommandError, add_connection_flags, connection_of
from magnetar.commands import consume, perf, produce
from magnetar.commands.latencies import Latencies
from magnetar.commands.perf_consume import subscriptions_of
from magnetar.commands.perf_produce import payloads_of
from magnetar.commands.perf_report import (
    INTERVAL_PERCENTS,
    Reporter,
    Tally,
    latency_text,
    produced_line,
    received_line,
    topics_of,
)


def test_messages_are_split_and_files_are_sent_whole(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one,two\x00")
    contents = produce.contents_of(["a,b", "c"], [str(tmp_path / "f")], ",")
    assert contents == [b"a", b"b", b"c", b"one,two\x00"]
    assert produce.contents_of(["a,b"], [], "") == [b"a,b"]


@pytest.mark.parametrize(("messages", "files"), [([], []), ([], ["/nowhere/at/all"])])
def test_produce_fails_when_there_is_no_content(messages: list[str], files: list[str]) -> None:
    with pytest.raises(CommandError):
        produce.contents_of(messages, files, ",")


def test_properties_are_parsed_and_malformed_ones_refused() -> None:
    assert produce.properties_of(["a=b,c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    with pytest.raises(CommandError, match="'x'"):
        produce.properties_of(["x"])


def message(data: bytes) -> SimpleNamespace:
    return SimpleNamespace(
        data=lambda: data,
        properties=lambda: {"a": "b", "c": "d"},
        publish_timestamp=lambda: 17,
        event_timestamp=lambda: 0,
        partition_key=lambda: "",
        message_id=lambda: "(1,2,-1,-1)",
        producer_name=lambda: "p",
        redelivery_count=lambda: 3,
    )


def test_consumed_message_is_printed_in_the_form_of_pulsars_tool() -> None:
    shown = consume.text_of(message(b"hi"), as_hex=False, with_metadata=False)
    assert shown == "publishTime:[17], eventTime:[0], key:[null], properties:[a=b, c=d], content:hi"
    shown = consume.text_of(message(b"\x01\xff"), as_hex=True, with_metadata=True)
    assert "content:01 ff, messageId:[(1,2,-1,-1)]" in shown
    assert shown.endswith("redeliveryCount:[3]")


def test_lines_have_pulsar_perfs_form() -> None:
    latencies = Latencies()
    for value in (1000, 2000, 3000):
        latencies.record(value)
    text = latency_text(latencies, INTERVAL_PERCENTS)
    assert produced_line(1000, 99.96, 1_000_000.0, 0.0, text) == (
        "Throughput produced:    1000 msg ---    100.0 msg/s ---      7.6 Mbit/s  --- failure      0.0 msg/s "
        "--- Latency: mean:   2.000 ms - med:   2.000 - 95pct:   3.000 - 99pct:   3.000 - 99.9pct:   3.000 "
        "- 99.99pct:   3.000 - Max:   3.000"
    )
    assert received_line(5, 0.5, 0, "x") == (
        "Throughput received:       5 msg --- 0.500  msg/s --- 0.000 Mbit/s  --- Latency: x"
    )


def test_the_aggregate_covers_all_intervals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tally = Tally()
    file = tmp_path / "h.hgrm"
    reporter = Reporter(tally, producing=True, interval_s=60, histogram_file=file)
    tally.succeeded(100, 1000)
    reporter.interval()
    tally.succeeded(100, None)
    tally.succeeded(100, 9000)
    tally.failed()
    reporter.aggregate()
    said = capsys.readouterr().out
    assert "3 records sent" in said
    assert "failed 1 msg" in said
    assert "mean:   5.000 ms" in said.splitlines()[-1]
    lines = file.read_text().splitlines()
    assert lines[0] == "#[Histogram log format version 1.3]"
    assert len(lines) == 4


def test_topics_and_subscriptions_by_count() -> None:
    assert topics_of(["t"], 1) == ["t"]
    assert topics_of(["t"], 3) == ["t-0", "t-1", "t-2"]
    assert subscriptions_of([], 1) == ["sub"]
    assert subscriptions_of(["a,b"], 2) == ["a", "b"]
    assert subscriptions_of(["a"], 2) == ["a-0", "a-1"]
    with pytest.raises(CommandError):
        topics_of(["a", "b"], 3)
    with pytest.raises(CommandError):
        subscriptions_of(["a", "b"], 3)


def test_payloads(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("one\ntwo\n")
    assert payloads_of(5, tmp_path / "p", "\\n") == [b"one", b"two"]
    assert len(payloads_of(5, None, "\\n")[0]) == 5


def connection_for(*words: str) -> object:
    import argparse

    parser = argparse.ArgumentParser()
    add_connection_flags(parser)
    return connection_of(parser.parse_args(words))


def test_flag_overrides_client_conf_which_overrides_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "client.conf"
    conf.write_text("brokerServiceUrl=pulsar://conf:1\nauthPlugin=token\nauthParams=token:x\n")
    monkeypatch.setenv("PULSAR_CLIENT_CONF", str(conf))
    found = connection_for()
    assert (found.url, found.auth_plugin, found.auth_params) == ("pulsar://conf:1", "token", "token:x")  # type: ignore[attr-defined]
    assert connection_for("--url", "pulsar://flag:2").url == "pulsar://flag:2"  # type: ignore[attr-defined]
    monkeypatch.delenv("PULSAR_CLIENT_CONF")
    monkeypatch.chdir(tmp_path)
    assert connection_for().url == "pulsar://127.0.0.1:6650"  # type: ignore[attr-defined]


def test_missing_client_conf_is_refused_when_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PULSAR_CLIENT_CONF", "/nowhere/client.conf")
    with pytest.raises(CommandError, match=r"/nowhere/client\.conf"):
        connection_for()


def test_client_conf_is_refused_when_it_asks_for_a_missing_protection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "client.conf"
    monkeypatch.setenv("PULSAR_CLIENT_CONF", str(conf))
    conf.write_text("authPlugin=token\ntlsTrustStorePath=/t.jks\nuseKeyStoreTls=true\n")
    with pytest.raises(CommandError) as caught:
        connection_for()
    assert str(caught.value) == (
        f"{conf}:2: tlsTrustStorePath=/t.jks: asks for TLS with Java key stores (not built);"
        f" to go without, leave the key unset; the same goes for useKeyStoreTls ({conf}:3)"
    )
    conf.write_text("useKeyStoreTls=false\ntlsKeyStoreType=JKS\n")
    assert connection_for() is not None


def test_missing_client_package_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pulsar", None)
    assert produce.main(["t", "-m", "x"]) == 1
    assert "pip install WHEEL[client]" in capsys.readouterr().err


def test_perf_exits_with_2_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert perf.main([]) == 2
    assert "produce" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_perf_finds_its_sub_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        perf.main([command, "--help"])
    assert f"magnetar perf {command}" in capsys.readouterr().out
