"""RemotePulsar: a Pulsar that runs already, with the face of `Broker` as far as a real Pulsar has it."""

from __future__ import annotations

import uuid
from typing import NoReturn

import pytest

from magnetar.kit.controls import ask


class RemotePulsar:
    """The Pulsar that `--pulsar-url` and `--pulsar-admin-url` name."""

    def __init__(self, pulsar_url: str, admin_url: str) -> None:
        self.pulsar_url = pulsar_url
        """`pulsar://host:port`."""
        self.admin_url = admin_url.rstrip("/")
        """`http://host:port`."""
        self.log = ""
        """Empty: the log of a real Pulsar is not at hand."""

    @property
    def clock(self) -> NoReturn:
        """Skips the test: time cannot be advanced there."""
        pytest.skip("a real Pulsar has no clock that a test can advance; run without --pulsar-url")

    @property
    def faults(self) -> NoReturn:
        """Skips the test: faults cannot be set there."""
        pytest.skip("a real Pulsar commits no faults on demand; run without --pulsar-url")

    def topic(self, name: str = "topic", namespace: str = "public/default") -> str:
        """As `Broker.topic`."""
        return f"persistent://{namespace}/{name}-{uuid.uuid4().hex[:12]}"

    def namespace(self, name: str = "test", tenant: str = "public") -> str:
        """As `Broker.namespace`."""
        full = f"{tenant}/{name}-{uuid.uuid4().hex[:12]}"
        self.ask("PUT", f"/admin/v2/namespaces/{full}")
        return full

    def ask(self, method: str, path: str, body: object = None) -> object:
        """As `Broker.ask`."""
        return ask(self.admin_url, method, path, body)
