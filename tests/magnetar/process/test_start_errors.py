"""A start that fails at a port, the data folder or the Python says in one sentence why, and what to do."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def refused(*words: str, role: str = "standalone") -> tuple[int, str]:
    """Returns the exit code and standard error of a start that fails."""
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", role, "--log-format", "plain", *words],
        cwd=ROOT,
        env={**os.environ, "PULSAR_LOG_LEVEL": "error"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.returncode, done.stderr


def test_data_folder_that_is_a_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, said = refused("--data", str(file))
    assert code == 2
    assert said == (
        f"--data: magnetarDataDirectory={file}: this is a file; name a folder that this user can write, with --data\n"
    )


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that even root cannot write")
def test_data_folder_that_cannot_be_written_is_named_with_the_remedy() -> None:
    code, said = refused("--data", "/proc/magnetar")
    assert code == 2
    assert said.startswith("--data: magnetarDataDirectory=/proc/magnetar: ")
    assert said.endswith("; name a folder that this user can write, with --data\n")


@pytest.mark.parametrize("key", ["brokerServicePort", "webServicePort"])
def test_port_in_use_is_named_with_its_key_and_process(key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports = {"brokerServicePort": 0, "webServicePort": 0, key: port}
        words = [word for name, value in ports.items() for word in ("--set", f"{name}={value}")]
        code, said = refused("--memory", "--set", "bindAddress=127.0.0.1", *words)
    assert code == 1
    assert f"cannot start: --set: {key}={port}: the port is in use" in said
    assert f"or take another port with --set {key}=PORT" in said
    if Path("/proc/net/tcp").exists():
        assert f"by process {os.getpid()} (" in said


@pytest.mark.parametrize("key", ["bookiePort", "prometheusStatsHttpPort"])
def test_port_in_use_is_named_by_a_bookie_with_its_key_and_process(key: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ports = {"bookiePort": 0, "prometheusStatsHttpPort": 0, key: port}
        words = [word for name, value in ports.items() for word in ("--set", f"{name}={value}")]
        code, said = refused("--data", str(tmp_path), *words, role="bookie")
    assert code == 1
    assert f"cannot start: --set: {key}={port}: the port is in use" in said
    assert f"or take another port with --set {key}=PORT" in said


@pytest.mark.parametrize("role", ["standalone", "broker", "bookie"])
def test_ready_file_that_cannot_be_written_is_refused_before_the_start(role: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    remedy = "name a file in a folder that this user can write, with --ready-file\n"
    for path, reason in (
        (missing / "ready", f"there is no folder {missing}"),
        (tmp_path, "this is a folder"),
    ):
        code, said = refused("--data", str(tmp_path / "data"), "--ready-file", str(path), role=role)
        assert (code, said) == (2, f"--ready-file {path}: {reason}; {remedy}")
    assert not (tmp_path / "data").exists()


def test_data_folder_of_a_bookie_that_is_a_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, said = refused("--data", str(file), "--set", "bookiePort=0", role="bookie")
    assert code == 1
    assert f"cannot start: --data: magnetarDataDirectory={file}: {file}/" in said
    assert said.endswith("; name a folder that this user can write, with --data\n")


@pytest.mark.parametrize("role", ["standalone", "bookie"])
@pytest.mark.parametrize("key", ["journalDirectory", "journalDirectories", "ledgerDirectories"])
def test_folder_of_a_bookie_that_is_a_file_is_named_with_its_key(role: str, key: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, said = refused("--data", str(tmp_path / "data"), "--set", f"{key}={file}", role=role)
    assert code == 1
    assert f"cannot start: --set: {key}={file}: {file}" in said
    assert said.endswith(f"; name a folder that this user can write, with --set {key}=FOLDER\n")


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_older_python_is_refused_by_make_before_anything_is_built(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n")  # As its answer to the question for the version.
    old.chmod(0o755)
    command = ["make", "run", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Python 3.11 or newer is needed")
    assert not (tmp_path / "venv").exists()


def test_older_python_is_refused_by_pip_before_the_dependencies() -> None:
    code = "import runpy, sys; sys.version_info = (3, 10, 13); runpy.run_path('setup.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Python 3.11 or newer is needed")
