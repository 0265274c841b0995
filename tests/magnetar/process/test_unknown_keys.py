"""Unknown keys end the start of a server, from each source; an option lets them pass with one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def start(role: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a server that ends at once: it finds the end of its standard input, or a wrong setting."""
    return subprocess.run(
        [sys.executable, "-m", "magnetar", role, *words],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        input="",
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("role", ["standalone", "broker", "bookie"])
def test_unknown_key_of_the_command_line_ends_the_start(role: str) -> None:
    done = start(role, "--set", "magnetarDataDirectry=x")
    assert done.returncode == 2
    assert done.stderr == (
        "--set: magnetarDataDirectry is not a key that this program knows; did you mean magnetarDataDirectory?"
        " Correct or remove it, or start with --allow-unknown-keys to go without its effect\n"
    )


def test_misspelt_key_of_the_embedded_bookie_has_its_nearest_name() -> None:
    done = start("standalone", "--memory", "--set", "journalMaxSizeMb=64")
    assert done.returncode == 2
    assert (
        "journalMaxSizeMb is not a key that this program knows; did you mean journalMaxSizeMB?" in done.stderr
    )


def test_unknown_key_of_the_environment_ends_the_start() -> None:
    done = start("standalone", "--memory", PULSAR_PREFIX_maxMesageSize="7")
    assert done.returncode == 2
    assert done.stderr.startswith("environment PULSAR_PREFIX_maxMesageSize: maxMesageSize is not a key")


@pytest.mark.parametrize("key", ["brokerServiceUrl", "journalDirectories", "authPlugin"])
def test_key_of_another_program_ends_no_start_in_a_shared_environment(key: str) -> None:
    words = ("--until-eof", "--set", "brokerServicePort=0", "--set", "webServicePort=0")
    done = start("broker", "--memory", *words, **{f"PULSAR_PREFIX_{key}": "x"})
    assert done.returncode == 0, done.stderr


def test_key_of_another_program_on_the_command_line_ends_the_start() -> None:
    done = start("broker", "--memory", "--set", "authPlugin=x")
    assert done.returncode == 2
    assert done.stderr.startswith("--set: authPlugin is not a key that this program knows")


def test_unknown_key_of_a_file_passes_with_one_line_when_allowed(tmp_path: Path) -> None:
    conf = tmp_path / "standalone.conf"
    conf.write_text("keyOfAnotherVersion=1\n")
    assert start("standalone", "--memory", "-c", str(conf)).returncode == 2
    words = (
        "--allow-unknown-keys",
        "--until-eof",
        "--set",
        "brokerServicePort=0",
        "--set",
        "webServicePort=0",
    )
    done = start("standalone", "--memory", "-c", str(conf), *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == (
        "--allow-unknown-keys: 1 unknown key without effect; the log names each"
    )


@pytest.mark.parametrize("role", ["standalone", "broker"])
def test_shipped_file_has_no_unknown_key(role: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", "config", "show", "--for", role, "-c", f"conf/{role}.conf"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "is not a key" not in done.stderr
