"""Folders of network interfaces, as Linux shows them below /sys/class/net."""

from __future__ import annotations

from pathlib import Path


def interface(
    folder: Path, *, received: int, sent: int, speed: str = "-1", state: str = "up", kind: str = "1"
) -> None:
    """Makes the files of an interface; the speed is in Mbit/s, -1 where it is not known."""
    (folder / "statistics").mkdir(parents=True, exist_ok=True)
    (folder / "statistics/rx_bytes").write_text(f"{received}\n")
    (folder / "statistics/tx_bytes").write_text(f"{sent}\n")
    (folder / "speed").write_text(f"{speed}\n")
    (folder / "operstate").write_text(f"{state}\n")
    (folder / "type").write_text(f"{kind}\n")
