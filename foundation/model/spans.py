"""Durations in words, as coarse as people say them."""

from __future__ import annotations

_STEPS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))


def span(seconds: float) -> str:
    """Returns a duration in words. Examples: `under 1 ms`, `350 ms`, `4.2 s`, `12 min 3 s`, `5 h 12 min`, `3 d 4 h`."""
    if seconds < 0.001:
        return "under 1 ms"
    # Limits at half a last digit below the unit: 0.9996 s would be written as 1000 ms.
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, large_name, small, small_name in _STEPS:
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")
    return f"{whole} s"
