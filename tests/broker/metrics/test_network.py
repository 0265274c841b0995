"""The share of the network's bandwidth: which interfaces count, and the numbers of a window."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.metrics.network import NetworkSettings, NetworkTraffic, NetworkWindow, traffic
from tests.broker.metrics.network_of import interface


def test_physical_interfaces_that_are_up_count_with_their_speed(tmp_path: Path) -> None:
    interface(tmp_path / "eth0", received=10, sent=1, speed="1000")
    interface(tmp_path / "eth1", received=20, sent=2, speed="100")
    interface(tmp_path / "eth2", received=40, sent=4, speed="1000", state="down")
    interface(tmp_path / "wlan", received=80, sent=8, speed="1000", kind="801")
    virtual = tmp_path / "devices/virtual/veth"
    interface(virtual, received=160, sent=16, speed="10000")
    (tmp_path / "net").mkdir()
    for name in ("eth0", "eth1", "eth2", "wlan"):
        (tmp_path / "net" / name).symlink_to(tmp_path / name)
    (tmp_path / "net/veth").symlink_to(virtual)
    assert traffic(NetworkSettings(folder=tmp_path / "net")) == NetworkTraffic(30, 3, 1100 * 125_000)


def test_named_interfaces_count_alone_with_the_speed_of_the_settings(tmp_path: Path) -> None:
    interface(tmp_path / "eth0", received=10, sent=1, speed="1000")
    interface(tmp_path / "lo", received=20, sent=2, speed="-1", kind="772")
    settings = NetworkSettings(("lo", "absent"), 2.0, tmp_path)
    assert traffic(settings) == NetworkTraffic(20, 2, 250_000_000)


@pytest.mark.parametrize("speed", ["-1", ""])
def test_window_has_no_share_without_a_known_speed(tmp_path: Path, speed: str) -> None:
    interface(tmp_path / "eth0", received=10, sent=1, speed=speed)
    window = NetworkWindow(NetworkSettings(("eth0",), folder=tmp_path), 0)
    interface(tmp_path / "eth0", received=1000, sent=1000, speed=speed)
    window.roll(1_000_000_000)
    assert (window.in_percent, window.out_percent) == (None, None)


def test_window_leaves_out_a_share_when_counters_have_fallen(tmp_path: Path) -> None:
    interface(tmp_path / "eth0", received=0, sent=0)
    window = NetworkWindow(NetworkSettings(("eth0",), 1.0, tmp_path), 0)
    for second, received, expected in ((2, 50_000_000, 20.0), (3, 0, None), (4, 12_500_000, 10.0)):
        interface(tmp_path / "eth0", received=received, sent=0)
        window.roll(second * 1_000_000_000)
        assert window.in_percent == expected
