"""Numbers in few characters, with their units. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence


def count(value: float | None) -> str:
    """Returns a number in at most five characters, 0.2, 17, 4.1k, 12M, or a dash for None."""
    return _scaled(value, 1000, ("", "k", "M", "G", "T"))


def size(value: float | None) -> str:
    """Returns bytes in at most eight characters, 17 B, 4.1 KiB, 12 MiB, or a dash for None."""
    return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def digits(value: float | None) -> str:
    """Returns a whole number with all its digits, or a dash for None."""
    return "-" if value is None else f"{value:.0f}"


def percent(ratio: float | None) -> str:
    """Returns a ratio as 98.5 %, or a dash for None."""
    return "-" if ratio is None else f"{ratio * 100:.1f} %"


def rate(value: float | None) -> str:
    """Returns a number per second as 4.1k/s, or a dash for None."""
    return "-" if value is None else f"{count(value)}/s"


def byte_rate(value: float | None) -> str:
    """Returns bytes per second as 4.1 KiB/s, or a dash for None."""
    return "-" if value is None else f"{size(value)}/s"


def milliseconds(value: float | None) -> str:
    """Returns a time as 0.2 ms or 17 ms, or a dash for None."""
    return "-" if value is None else f"{_short(value)} ms"


def publish_latency(value: float | None) -> str:
    """Returns a publish latency as `milliseconds` does, and > 1 s where the broker's buckets end."""
    return "> 1 s" if value is not None and value >= 1000 else milliseconds(value)


def age(ms: float) -> str:
    """Returns how long ago a time was as now, 17 s ago, 3 min ago or 2 h ago: whole units, rounded down."""
    seconds = int(ms // 1000)
    for unit, one in (("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= one:
            return f"{seconds // one} {unit} ago"
    return "now"


def fitted(text: str, width: int) -> str:
    """Returns a text in at most `width` characters; a longer one loses its beginning."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _scaled(value: float | None, base: int, units: Sequence[str]) -> str:
    if value is None:
        return "-"
    for unit in units[:-1]:
        if abs(value) < base:
            return f"{_short(value)}{unit}"
        value /= base
    return f"{_short(value)}{units[-1]}"


def _short(value: float) -> str:
    return f"{value:.1f}" if 0 < abs(value) < 9.95 and abs(value - round(value)) >= 0.05 else f"{value:.0f}"
