"""A broker per module, with the settings that the module names in `SETTINGS`; a client and a topic per test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping

import pulsar
import pytest

from tests.interop.support import Admin, connect
from tests.vectors.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    settings: dict[str, str] = getattr(request.module, "SETTINGS", {})
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def broker_with(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Mapping[str, str]], BrokerProcess]]:
    """Brokers by their settings, in memory: the first test that asks starts one, the module's others share it."""
    with contextlib.ExitStack() as running:
        brokers: dict[frozenset[tuple[str, str]], BrokerProcess] = {}

        def started(settings: Mapping[str, str]) -> BrokerProcess:
            key = frozenset(settings.items())
            if key not in brokers:
                fresh = BrokerProcess(tmp_path_factory.mktemp("broker"), settings, memory=True)
                brokers[key] = running.enter_context(fresh)
            return brokers[key]

        yield started


@pytest.fixture
def admin(broker: BrokerProcess) -> Admin:
    return Admin.of(broker)


@pytest.fixture
def connected() -> Iterator[Callable[[str], pulsar.Client]]:
    """Opens clients by address; those that are still open at the end of the test are closed."""
    opened: list[pulsar.Client] = []

    def open_one(url: str) -> pulsar.Client:
        opened.append(connect(url))
        return opened[-1]

    yield open_one
    for one in opened:
        # Not connected: its broker ended a moment ago, and the client has not let go of the connection yet.
        with contextlib.suppress(pulsar.AlreadyClosed, pulsar.NotConnected):
            one.close()


@pytest.fixture
def client(broker: BrokerProcess, connected: Callable[[str], pulsar.Client]) -> pulsar.Client:
    return connected(broker.addresses.pulsar)


@pytest.fixture
def other_client(broker: BrokerProcess, connected: Callable[[str], pulsar.Client]) -> pulsar.Client:
    """A second one, on a connection of its own."""
    return connected(broker.addresses.pulsar)


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
