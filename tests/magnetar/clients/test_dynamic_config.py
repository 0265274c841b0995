"""`magnetar config set` and its siblings with a running broker, and without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magnetar.commands.config_command import main
from tests.magnetar.test_against_broker import run
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

SIZE, TTL = "managedLedgerCacheSizeMB", "managedLedgerCacheEvictionTimeThresholdMillis"
Config = Callable[..., str]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {SIZE: "64"}, memory=True) as broker:
        yield broker.addresses.admin


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No client.conf is near."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PULSAR_CLIENT_CONF", raising=False)


@pytest.fixture
def config(url: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Config]:
    """Runs one action, which must succeed, and answers what it printed; what was set is taken back at the end."""

    def call(*words: str) -> str:
        assert main([*words, "--admin-url", url]) == 0
        return capsys.readouterr().out

    yield call
    for line in call("dynamic").splitlines():
        call("unset", line.partition("=")[0])


@pytest.fixture
def refusal(url: str, capsys: pytest.CaptureFixture[str]) -> Config:
    """The one line of an action that fails."""

    def call(*words: str) -> str:
        assert main([*words, "--admin-url", url]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    return call


def test_setting_is_changed_shown_and_unset(config: Config) -> None:
    assert config("set", SIZE, "32") == f"{SIZE}=32\n"
    assert config("dynamic") == f"{SIZE}=32\n"
    assert json.loads(config("dynamic", "-o", "json")) == {SIZE: "32"}
    assert config("runtime", SIZE, TTL) == f"{SIZE}=32\n{TTL}=1000\n"
    assert config("unset", SIZE) == f"{SIZE}=64\n"
    assert config("dynamic") == ""


def test_names_and_flags_of_pulsar_admin_are_accepted(config: Config) -> None:
    assert config("update-dynamic-config", "--config", SIZE, "--value", "32") == f"{SIZE}=32\n"
    assert config("get-all-dynamic-config") == f"{SIZE}=32\n"
    assert f"{SIZE}=32" in config("get-runtime-config").splitlines()
    assert config("delete-dynamic-config", "--config", SIZE) == f"{SIZE}=64\n"
    names = config("list-dynamic-config").splitlines()
    assert names == sorted(names)
    assert {SIZE, TTL} <= set(names)
    assert json.loads(config("keys", "-o", "json")) == names


def test_warning_goes_to_standard_error(url: str, config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["set", "allowOverrideEntryFilters", "true", "--admin-url", url]) == 0
    captured = capsys.readouterr()
    assert captured.out == "allowOverrideEntryFilters=true\n"
    assert captured.err == "warning: dynamic: allowOverrideEntryFilters: accepted, not used here\n"


def test_refusal_of_the_broker_is_one_line(url: str, refusal: Config) -> None:
    why = "Invalid dynamic-config value"
    assert refusal("set", SIZE, "-1") == (
        f"magnetar config: {url} refused: {why}: {SIZE}=-1: allowed is a whole number from 0 to 2147483647 (412)\n"
    )
    assert "only changes with a restart (412)" in refusal("set", "managedLedgerCacheCopyEntries", "true")
    assert f"no such key; did you mean {SIZE}? (412)" in refusal("unset", "managedLedgerCacheSizeMb")
    assert refusal("runtime", "zzz") == "magnetar config: zzz: the broker shows no such key\n"


def test_value_with_special_characters_arrives_unchanged(config: Config) -> None:
    assert (
        config("set", "entryFiltersDirectory", "./a b/c?d=é%2F") == "entryFiltersDirectory=./a b/c?d=é%2F\n"
    )
    assert config("dynamic") == "entryFiltersDirectory=./a b/c?d=é%2F\n"


def test_secret_is_masked_when_it_is_refused(refusal: Config) -> None:
    key = "tokenSecretKey"
    error = refusal("set", key, "token:hunter2")
    assert key in error
    assert "hunter2" not in error


def test_error_names_the_address_when_no_broker_answers(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    assert main(["set", SIZE, "32", "--admin-url", nowhere]) == 1
    assert capsys.readouterr().err == (
        f"magnetar config: no broker answers at {nowhere} (Connection refused); start one or name it with --admin-url\n"
    )


@pytest.mark.parametrize("text", ["localhost:8080", "ftp://localhost", "http://", "http://h:x", "http://[::"])
def test_malformed_address_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dynamic", "--admin-url", text]) == 1
    assert "allowed is http://host:port" in capsys.readouterr().err


def test_address_is_read_from_client_conf(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/client.conf").write_text(f"webServiceUrl={url}/\n")
    assert main(["runtime", SIZE]) == 0
    assert capsys.readouterr().out == f"{SIZE}=64\n"


@pytest.mark.parametrize(
    "words", [["set"], ["set", SIZE], ["set", SIZE, ""], ["set", "a", "b", "--value", "c"], ["unset"], []]
)
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert capsys.readouterr().err


def test_start_and_change_are_refused_with_the_same_rule(
    tmp_path: Path, config: Config, refusal: Config
) -> None:
    most, partitions = "maxNumPartitionsPerPartitionedTopic", "defaultNumPartitions"
    rule = f"{partitions} (8) may not be above {most} (4)"
    given = {"allowAutoTopicCreationType": "partitioned", partitions: "8", most: "4"}
    overrides = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    code, _, errors = run("magnetar", "standalone", "--data", str(tmp_path), *overrides)
    assert (code, errors.count("\n")) == (2, 1)
    assert rule in errors
    for key in ("allowAutoTopicCreationType", partitions):
        config("set", key, given[key])
    assert rule in refusal("set", most, given[most])
