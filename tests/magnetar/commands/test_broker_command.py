"""Flags of standalone and broker become options; flags without a counterpart are accepted and named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from foundation.settings.load import FromOption
from magnetar.commands.broker_command import ignored_variables, parse
from magnetar.process.options import BrokerOptions, Role
from magnetar.process.standalone import load
from tests.vectors.broker_process import REPOSITORY


def test_options_are_empty_without_flags() -> None:
    options, log_format, ignored = parse("standalone", [])
    assert options == BrokerOptions(
        "standalone", None, None, False, (), None, None, False, False, False, False
    )
    assert (log_format, ignored) == ("auto", [])


def test_every_flag_reaches_its_option() -> None:
    words = "-c b.conf --data d --memory --set a=1 --set b=x=y --ready-file r --profile 5.0 --wipe-data"
    words += " --test-faults --until-eof --allow-unknown-keys"
    options, log_format, _ = parse("broker", [*words.split(), "--log-format", "json"])
    assert options == BrokerOptions(
        "broker", Path("b.conf"), Path("d"), True, ("a=1", "b=x=y"), Path("r"), "5.0", True, True, True, True
    )
    assert log_format == "json"


def test_set_overrides_the_advertised_address_flag() -> None:
    options, _, _ = parse("standalone", ["--set", "advertisedAddress=two", "-a", "one"])
    flag = FromOption("-a/--advertised-address", "advertisedAddress", "one")
    assert options.overrides == (flag, "advertisedAddress=two")


@pytest.mark.parametrize("role", ["standalone", "broker"])
@pytest.mark.parametrize(
    ("words", "key", "origin"),
    [
        (["-a", "one"], "advertisedAddress", "-a/--advertised-address"),
        (["--set", "advertisedAddress=one"], "advertisedAddress", "--set"),
        (["--data", "folder"], "magnetarDataDirectory", "--data"),
        (["--memory"], "magnetarInMemory", "--memory"),
        (["--profile", "5.0"], "pulsarDefaults", "--profile"),
    ],
)
def test_option_that_stands_for_a_key_is_the_origin_of_its_value(
    role: Role, words: list[str], key: str, origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options, _, _ = parse(role, ["--set", "bookieAddress=127.0.0.1:3181", *words])
    settings = load(options).broker
    assert settings.error(key, "wrong").line.startswith(f"{origin}: {key}=")


def test_advertised_address_with_a_port_ends_the_start_and_names_the_option() -> None:
    command = [sys.executable, "-m", "magnetar", "standalone", "--memory", "-a", "bad_host:1"]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    (line,) = [line for line in ended.stderr.splitlines() if "bad_host" in line]
    assert "-a/--advertised-address: advertisedAddress=bad_host:1" in line
    assert "without scheme, port and path" in line


def test_flags_without_effect_are_accepted_and_named() -> None:
    words = "-nfw -nss --bookkeeper-dir x --bookkeeper-port 3181 --zookeeper-dir y --num-bookies 1 --metadata-url z"
    _, _, ignored = parse("standalone", words.split())
    names = [text.split()[0] for text in ignored]
    assert "--no-functions-worker" in names
    assert "--bookkeeper-port" in names
    assert len(ignored) == 7


def test_variables_of_the_jvm_are_named_when_they_are_set() -> None:
    environ = {"PULSAR_MEM": "-Xmx512m", "PULSAR_GC": "", "PATH": "/bin"}
    assert ignored_variables(environ) == [
        "PULSAR_MEM (but for -XX:MaxDirectMemorySize; there is no Java heap)"
    ]


@pytest.mark.parametrize(
    "words", [["--set", "novalue"], ["--set", "=1"], ["--profile", "3.0"], ["--dat", "x"]]
)
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse("standalone", words)
    assert stopped.value.code == 2
    assert "magnetar standalone: error:" in capsys.readouterr().err
