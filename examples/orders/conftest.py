"""The clock of these tests: Magnetar's, or real sleeps on a real Pulsar, where an hour may be shorter.

`pytest examples/orders --pulsar-url … --pulsar-admin-url … --hour-seconds 2` sleeps two seconds for an hour.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest


class SleepingClock:
    """Stands in for `broker.clock` where time cannot be moved: `advance` sleeps."""

    def __init__(self, hour: timedelta) -> None:
        self._scale = hour / timedelta(hours=1)

    def advance(self, **units: float) -> None:
        """Sleeps for the time, scaled."""
        time.sleep((timedelta(**units) * self._scale).total_seconds())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hour-seconds",
        type=float,
        help="on a real Pulsar: sleep so many seconds for an hour of these tests",
    )


@pytest.fixture
def hour(request: pytest.FixtureRequest) -> timedelta:
    """The length of an hour; policies and delays are multiples of it."""
    seconds = request.config.getoption("--hour-seconds")
    return timedelta(hours=1) if seconds is None else timedelta(seconds=seconds)


@pytest.fixture
def clock(request: pytest.FixtureRequest, hour: timedelta, pulsar_broker: Any) -> Any:
    """Has `advance`. Skips the test on a real Pulsar without `--hour-seconds`."""
    if request.config.getoption("--hour-seconds") is not None:
        return SleepingClock(hour)
    return pulsar_broker.clock
