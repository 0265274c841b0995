"""`magnetar config show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from magnetar.commands.config_command import main


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty directory and without variables that name files."""
    monkeypatch.chdir(tmp_path)
    for name in ("BROKER", "STANDALONE", "BOOKKEEPER", "CLIENT"):
        monkeypatch.delenv(f"PULSAR_{name}_CONF", raising=False)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def test_show_prints_the_values_of_broker_and_bookie(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--set", "maxMessageSize=70000").splitlines()
    assert "maxMessageSize=70000" in lines
    assert "clusterName=standalone" in lines
    assert "journalSyncData=true" in lines
    assert len({line.partition("=")[0] for line in lines}) == len(lines)


def test_show_prints_origins(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "my.conf"
    conf.write_text("clusterName=c\n")
    monkeypatch.setenv("PULSAR_PREFIX_maxProducersPerTopic", "3")
    words = ["clusterName", "maxProducersPerTopic", "maxMessageSize", "dispatcherMaxReadBatchSize"]
    out = shown(capsys, *words, "--origin", "-o", "json", "-c", str(conf), "--set", "maxMessageSize=70000")
    assert {row["key"]: (row["value"], row["origin"]) for row in json.loads(out)} == {
        "clusterName": ("c", f"{conf}:1"),
        "maxProducersPerTopic": ("3", "environment PULSAR_PREFIX_maxProducersPerTopic"),
        "maxMessageSize": ("70000", "--set"),
        "dispatcherMaxReadBatchSize": ("100", "profile 4.2"),
    }
    text = shown(capsys, "maxMessageSize", "--origin", "--set", "maxMessageSize=70000")
    assert text.split() == ["maxMessageSize=70000", "#", "--set"]


def test_show_reads_the_file_of_the_role(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/broker.conf").write_text("clusterName=here\n")
    assert shown(capsys, "clusterName", "--for", "broker") == "clusterName=here\n"
    (tmp_path / "other.conf").write_text("clusterName=there\n")
    monkeypatch.setenv("PULSAR_BROKER_CONF", str(tmp_path / "other.conf"))
    assert shown(capsys, "clusterName", "--for", "broker") == "clusterName=there\n"


@pytest.mark.parametrize(
    ("role", "line"),
    [("bookie", "journalSyncData=true"), ("client", "brokerServiceUrl=pulsar://localhost:6650/")],
)
def test_show_prints_the_values_of_other_roles(
    capsys: pytest.CaptureFixture[str], role: str, line: str
) -> None:
    assert line in shown(capsys, "--for", role).splitlines()


def test_show_prints_the_difference_of_two_profiles(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--diff", "4.2", "5.0").splitlines()
    assert "dispatcherMaxReadBatchSize: 100 -> 500" in lines
    assert "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed: true -> false" in lines
    assert not any(line.startswith("maxMessageSize") for line in lines)
    assert shown(capsys, "--diff", "4.2", "4.2") == ""
    rows = json.loads(shown(capsys, "--diff", "4.2", "5.0", "-o", "json"))
    assert {"key": "dispatcherMaxReadBatchSize", "4.2": "100", "5.0": "500"} in rows


def test_show_masks_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--set", "managedLedgerPassword=hunter2"]) == 0
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_mistake_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--set", "maxMessageSize=lots"]) == 2
    assert capsys.readouterr().err == (
        "--set: maxMessageSize=lots: allowed is a whole number from 1024 to 2147483647\n"
    )
    assert main(["show", "maxMesageSize"]) == 2
    assert capsys.readouterr().err == "maxMesageSize: no such key is in use; did you mean maxMessageSize?\n"
