"""The share of the network's bandwidth that this machine uses, for the load board.

Linux counts the bytes of each interface and tells its speed. Virtual interfaces tell none or a made-up one, so without
`loadBalancerOverrideBrokerNics` physical ones count alone, and a machine without any has no such series. The counters
are those of the machine, or of the container's own network: other programs there count too, as with Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

INTERFACES: Final = Path("/sys/class/net")
"""A folder for each interface, with a file for each fact."""
ETHERNET: Final = "1"
"""The `type` of interfaces that count without being named."""
_BYTES_PER_MBIT: Final = 125_000
_BYTES_PER_GBIT: Final = 125_000_000


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The interfaces that count, fixed at the start of the broker."""

    names: tuple[str, ...] = ()
    """loadBalancerOverrideBrokerNics; empty = all physical ones that are up."""
    gbit_per_s: float = 0.0
    """loadBalancerOverrideBrokerNicSpeedGbps: the speed of each; 0 = as Linux tells it."""
    folder: Path = INTERFACES
    """Another folder in tests."""


class NetworkTraffic(NamedTuple):
    """The interfaces together since they came up."""

    received: int
    """Bytes received."""
    sent: int
    """Bytes sent."""
    speed: float
    """Bytes per second that they can carry each way; 0 = not known."""


class NetworkWindow:
    """The shares of the bandwidth that were used in the last whole window."""

    def __init__(self, settings: NetworkSettings, now_ns: int) -> None:
        """The first window begins at `now_ns`."""
        self._settings = settings
        self._rolled_ns = now_ns
        self._traffic = traffic(settings)
        self.in_percent: float | None = None
        """Received, 0 to 100; None while no speed is known or no window is over."""
        self.out_percent: float | None = None
        """Sent, 0 to 100; None as above."""

    def roll(self, now_ns: int) -> None:
        """Closes the window; the percentages stay the same until the next call."""
        before, now = self._traffic, traffic(self._settings)
        seconds = (now_ns - self._rolled_ns) / 1e9
        if seconds <= 0:
            return
        self._traffic, self._rolled_ns = now, now_ns
        capacity = now.speed * seconds
        # Counters fall when an interface goes away; that window has no share.
        if capacity <= 0 or now.received < before.received or now.sent < before.sent:
            self.in_percent = self.out_percent = None
            return
        self.in_percent = 100 * (now.received - before.received) / capacity
        self.out_percent = 100 * (now.sent - before.sent) / capacity


def traffic(settings: NetworkSettings) -> NetworkTraffic:
    """Returns the counters of the interfaces that count; those that cannot be read are left out."""
    received = sent = 0
    speed = 0.0
    for folder in _interfaces(settings):
        try:
            received += int((folder / "statistics/rx_bytes").read_text())
            sent += int((folder / "statistics/tx_bytes").read_text())
        except (OSError, ValueError):
            continue
        speed += settings.gbit_per_s * _BYTES_PER_GBIT or _speed(folder)
    return NetworkTraffic(received, sent, speed)


def _interfaces(settings: NetworkSettings) -> list[Path]:
    if settings.names:
        return [settings.folder / name for name in settings.names]
    try:
        return [folder for folder in sorted(settings.folder.iterdir()) if _counts(folder)]
    except OSError:  # Not Linux.
        return []


def _counts(folder: Path) -> bool:
    """Returns True for a physical Ethernet interface that is up."""
    try:
        physical = "virtual" not in folder.resolve().parts
        up = (folder / "operstate").read_text().strip() == "up"
        return physical and up and (folder / "type").read_text().strip() == ETHERNET
    except OSError:
        return False


def _speed(folder: Path) -> float:
    """Returns bytes per second; 0 where Linux does not know, which it tells by -1 or by an error."""
    try:
        return max(int((folder / "speed").read_text()), 0) * _BYTES_PER_MBIT
    except (OSError, ValueError):
        return 0.0
