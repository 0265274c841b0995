"""A broker per module, with the settings that the module names in `SETTINGS`; a client and a topic per test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

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


@pytest.fixture
def admin(broker: BrokerProcess) -> Admin:
    return Admin(broker.addresses.admin)


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    opened = connect(broker.addresses.pulsar)
    yield opened
    opened.close()


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"
