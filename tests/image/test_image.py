"""A container of the image: its health, its programs and paths, and the start of .NET's Pulsar module."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.compose.__main__ import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.peer]

WITH_TOKENS = """
bin/pulsar tokens create-secret-key --output /pulsar/secret.key
export CLIENT_PREFIX_authParams=token:$(bin/pulsar tokens create --secret-key /pulsar/secret.key --subject test-user)
export CLIENT_PREFIX_authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken
export PULSAR_PREFIX_authenticationEnabled=true
export PULSAR_PREFIX_authorizationEnabled=true
export PULSAR_PREFIX_authenticationProviders=org.apache.pulsar.broker.authentication.AuthenticationProviderToken
export PULSAR_PREFIX_tokenSecretKey=file:///pulsar/secret.key
export PULSAR_PREFIX_superUserRoles=test-user
bin/apply-config-from-env.py conf/standalone.conf
bin/apply-config-from-env-with-prefix.py CLIENT_PREFIX_ conf/client.conf
exec bin/pulsar standalone --no-functions-worker --no-stream-storage
"""
"""A start with authentication, as test containers and compose files for Apache's image write it."""


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"docker {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def start(image: str) -> Iterator[list[str]]:
    """Container ids that a test adds; they are removed after it."""
    started: list[str] = []
    yield started
    for container in started:
        docker("rm", "-f", "-v", container)


def wait_until_healthy(container: str) -> None:
    def healthy() -> bool:
        return docker("inspect", "-f", "{{.State.Health.Status}}", container).strip() == "healthy"

    wait_for(healthy, 60, "the health of the container")


def test_container_becomes_healthy_and_runs_the_programs_of_pulsar(image: str, start: list[str]) -> None:
    began = time.monotonic()
    start.append(docker("run", "-d", image).strip())
    wait_until_healthy(start[0])
    print(f"healthy {time.monotonic() - began:.2f} s after docker run was called")
    check = json.loads(docker("inspect", "-f", "{{json .Config.Healthcheck.Test}}", start[0]))
    assert check[:2] == ["CMD", "healthcheck"]
    inside = ("exec", start[0])
    assert docker(*inside, "head", "-1", "/pulsar/bin/healthcheck") == "#!/bin/bash\n"
    assert "public/default" in docker(*inside, "bin/pulsar-admin", "namespaces", "list", "public")
    docker(*inside, "bin/pulsar-client", "--url", "pulsar://localhost:6650", "produce", "t", "-m", "hello")
    consume = ("bin/pulsar-client", "consume", "t", "-s", "s", "-n", "1", "-p", "Earliest")
    assert "hello" in docker(*inside, *consume)
    docker(*inside, "bash", "-c", "test -w /pulsar/conf && test -w /pulsar/data && test -w /pulsar/logs")


def test_container_with_tokens_lets_its_own_programs_in(image: str, start: list[str]) -> None:
    start.append(docker("run", "-d", image, "bash", "-c", WITH_TOKENS).strip())
    wait_until_healthy(start[0])
    assert docker("exec", start[0], "bin/pulsar-admin", "tenants", "list").split() == ["public", "pulsar"]
    docker("exec", start[0], "bin/pulsar-client", "produce", "t", "-m", "hello")
    without = ["docker", "exec", start[0], "bin/pulsar-admin", "--auth-params", "token:x", "tenants", "list"]
    assert subprocess.run(without, capture_output=True, timeout=120, check=False).returncode == 1
