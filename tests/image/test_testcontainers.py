"""The Pulsar modules of testcontainers for Java and Go, and testcontainers for Node, with our image for Apache's.

Programs of a line of output per check. Each is skipped with the reason where its toolchain or packages are missing.
Ryuk, the container that removes what a killed test has left, is an image of its own and is switched off.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.java import QUICK_JAVA, class_path

HERE = Path(__file__).parent
FETCH_S = 600
RUN_S = 600
ENVIRONMENT = {
    **os.environ,
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
    # The engine publishes ports here. In a container of its own, the modules would look for them at the gateway.
    "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
}

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(FETCH_S + RUN_S)]


def test_java_module_starts_the_image(image: str, tmp_path: Path) -> None:
    classes = class_path(HERE / "java" / "pom.xml", tmp_path)
    command = [*QUICK_JAVA, "-cp", classes, str(HERE / "java" / "Containers.java"), image]
    names = ("messages", "environment", "transactions", "programs", "functions_worker")
    assert outcomes(command) == [f"ok {name}" for name in names]


def test_go_module_starts_the_image(image: str, tmp_path: Path) -> None:
    program = tmp_path / "containers"
    fetch(["go", "mod", "download"], HERE / "go")
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=HERE / "go", timeout=RUN_S, check=True)
    names = ("messages", "environment", "transactions", "functions_worker")
    assert outcomes([str(program), image]) == [f"ok {name}" for name in names]


def test_node_waits_for_the_image_by_health_http_log_and_ports(image: str, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    shutil.copytree(HERE / "node", folder)
    # Scripts of packages would compile what only connections over SSH use.
    fetch(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    names = ("health", "http", "log", "ports")
    assert outcomes(["node", str(folder / "containers.js"), image]) == [f"ok {name}" for name in names]


def fetch(command: Sequence[str], folder: Path) -> None:
    """Runs a step that needs a package registry; skips the test where it fails for want of one."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]}: the packages did not come within {FETCH_S} s")
    if done.returncode:
        pytest.skip(f"{' '.join(command)}: {(done.stderr or done.stdout)[-300:]}")


def outcomes(command: Sequence[str]) -> list[str]:
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stderr)
    return done.stdout.splitlines()
