"""Programs in other languages beside the tests: whether their toolchain is there, their packages, and a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

FETCH_S: Final = 600
BUILD_S: Final = 900


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def fetch(command: Sequence[str], folder: Path) -> None:
    try:
        ended = run(command, FETCH_S, folder)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]}: the packages did not come within {FETCH_S} s")
    if ended.returncode != 0:
        pytest.skip(f"{command[0]}: no packages: {(ended.stderr or ended.stdout)[-300:]}")


def built_go(folder: Path, package: str, target: Path) -> Path:
    """Returns the program of a package of the module in `folder`; skips the calling test without Go or its packages."""
    need("go")
    fetch(["go", "mod", "download"], folder)
    built = run(["go", "build", "-o", str(target), package], BUILD_S, folder)
    assert built.returncode == 0, built.stderr
    return target


def run(
    command: Sequence[str],
    timeout_s: float,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def cargo_settings(folder: Path) -> dict[str, str]:
    """The environment for cargo. The client's build calls `protoc`, which grpcio-tools has and `folder` gets."""
    protoc = folder / "protoc"
    protoc.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n', encoding="utf-8")
    protoc.chmod(0o755)
    return {**os.environ, "PROTOC": str(protoc), "CARGO_PROFILE_DEV_DEBUG": "0"}
