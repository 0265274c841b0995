"""RemotePulsar: a Pulsar that runs already, with the methods of `Broker` that any Pulsar can offer."""

from __future__ import annotations

from typing import NoReturn

import pytest

from magnetar.kit.pulsar_under_test import PulsarUnderTest


class RemotePulsar(PulsarUnderTest):
    """The Pulsar that `--pulsar-url` and `--pulsar-admin-url` name."""

    def __init__(self, pulsar_url: str, admin_url: str, token: str | None = None) -> None:
        """`token` goes with the kit's own requests to the admin API."""
        self._token = token
        self._pulsar_url = pulsar_url
        self._admin_url = admin_url.rstrip("/")
        self.log = ""
        """Empty: the log of a real Pulsar is not at hand."""

    @property
    def pulsar_url(self) -> str:
        """The URL that was given."""
        return self._pulsar_url

    @property
    def admin_url(self) -> str:
        """The URL that was given, without a slash at the end."""
        return self._admin_url

    @property
    def clock(self) -> NoReturn:
        """Skips the test: time cannot be advanced there."""
        pytest.skip("a real Pulsar has no clock that a test can advance; run without --pulsar-url")

    @property
    def faults(self) -> NoReturn:
        """Skips the test: faults cannot be set there."""
        pytest.skip("a real Pulsar commits no faults on demand; run without --pulsar-url")
