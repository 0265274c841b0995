"""Shows the rows of a replayed grid: their settings, their gain, and the lines of broker.conf that they need.

Pure functions.
"""

from __future__ import annotations

from typing import Final

from entry_cache.policy_names import PIP430
from entry_cache.settings import CacheSettings
from entry_cache.size_bound import ENTRY_OVERHEAD_BYTES
from pipeline.jobs.report import Cell, bytes_text, percent, share, time_text
from pipeline.replays.grid import GridRow, Overrides
from pipeline.traces.checking import Checked

PEAK_NOTE: Final = "above the size until the end of a turn of the broker's loop, where the size is enforced"
"""Why a peak may be above the size of the cache."""
OWN = Overrides()
"""The broker's own settings."""
_NAMED: Final = 4
"""Brokers of equal settings that a line names."""
_COMBINATIONS: Final = 10
"""Combinations of present settings that the text lists."""


def own_lines(checked: Checked, model: GridRow) -> list[str]:
    """Returns lines with the own settings' hit ratio, as recorded and by the model."""
    if any(lifetime.why_not_exact() for lifetime in checked.lifetimes):
        return [
            "the access record is not complete, so the model's error is not known; it gives the own settings "
            f"{percent(model.hit_ratio)}"
        ]
    ratio = checked.hits / checked.reads if checked.reads else 0.0
    error = 100 * abs(model.hit_ratio - ratio)
    sample = f" on {share(model.rate)} of the entries" if model.rate < 1 else ""
    return [
        f"own settings as recorded, exact: hit ratio {percent(ratio)} of {checked.reads:,} entries read",
        f"own settings by the model{sample}: {percent(model.hit_ratio)}; its error of {error:.2f} points is that of the "
        "other lines, too",
    ]


def policy_name(settings: CacheSettings) -> str:
    """Returns the policy with its profile, where it has profiles."""
    return f"{PIP430} {settings.profile}" if settings.policy == PIP430 else settings.policy


def row_of(row: GridRow, own: GridRow) -> dict[str, Cell]:
    """Returns a row of a report's table.

    `saved_ratio` is the share of `own`'s bookie reads that it avoids. A setting in which brokers differ is None.
    """
    settings = settings_cells(row)
    saved = 1 - row.misses / own.misses if own.misses else 0.0
    return {
        "size_bytes": settings["size_bytes"],
        "hit_ratio": row.hit_ratio,
        "bookie_reads": row.misses,
        "saved_ratio": saved,
        "policy": settings["policy"],
        "ttl_ms": settings["ttl_ms"],
        "peak_bytes": row.peak_bytes,
        "extensions": settings["extensions"],
        "extend_accessed": settings["extend_accessed"],
        "by": row.by,
    }


def settings_cells(row: GridRow) -> dict[str, Cell]:
    """Returns the settings that a row was replayed with; None for one in which brokers differ."""
    brokers = [_cells_of(counts.settings) for counts in row.brokers.values()]
    return {
        name: value if all(one[name] == value for one in brokers) else None
        for name, value in brokers[0].items()
    }


def _cells_of(settings: CacheSettings) -> dict[str, Cell]:
    return {
        "size_bytes": settings.size_bytes_max,
        "policy": policy_name(settings),
        "ttl_ms": settings.ttl_ns // 1_000_000,
        "extensions": settings.requeues_max,
        "extend_accessed": settings.extend_recently_accessed,
    }


def peak_text(row: GridRow) -> str:
    """Returns the peak of a row, with the reason where it is above the size of the cache."""
    text = f"peak {bytes_text(row.peak_bytes)}"
    if row.peak_bytes <= row.settings.size_bytes_max:
        return text
    return f"{text} ({PEAK_NOTE})"


def memory_line(settings: CacheSettings, entry_bytes: float) -> str:
    """Returns the size that is counted, and the memory that a cache of this size takes when it is full."""
    size, objects = settings.size_bytes_max, f"{ENTRY_OVERHEAD_BYTES} bytes for the objects of each entry"
    if settings.charges_overhead:
        return f"memory: {bytes_text(size)}, of which managedLedgerCacheChargesOverhead counts {objects}"
    whole = round(size * (1 + ENTRY_OVERHEAD_BYTES / entry_bytes))
    return (
        f"memory: {bytes_text(size)} of entries are counted; with {objects}, whose mean size is {entry_bytes:,.0f} bytes, "
        f"a full cache takes about {bytes_text(whole)}"
    )


def changed_keys(present: GridRow, wanted: GridRow) -> list[str]:
    """Returns the lines of broker.conf that at least one broker does not have yet."""
    lines = []
    now = [counts.settings for counts in present.brokers.values()]
    new = wanted.settings
    # Settings that are not overridden stay as each broker has them.
    chosen = wanted.overrides
    if chosen.policy is not None and any(one.policy != new.policy for one in now):
        lines.append(f"entryCachePolicy={new.policy}")
    if chosen.size_bytes is not None and any(one.size_bytes_max != new.size_bytes_max for one in now):
        lines.append(f"managedLedgerCacheSizeMB={new.size_bytes_max >> 20}")
    if chosen.ttl_ns is not None and any(one.ttl_ns != new.ttl_ns for one in now):
        lines.append(f"managedLedgerCacheEvictionTimeThresholdMillis={new.ttl_ns // 1_000_000}")
    return lines


def present_lines(present: GridRow) -> list[str]:
    """Returns the present settings with their brokers, those of most brokers first; no line where all are equal."""
    brokers: dict[str, list[str]] = {}
    for broker, counts in present.brokers.items():
        one = counts.settings
        text = f"{bytes_text(one.size_bytes_max)}, {time_text(one.ttl_ns / 1e6)}, {policy_name(one)}"
        brokers.setdefault(text, []).append(broker)
    if len(brokers) < 2:
        return []
    ordered = sorted(brokers.items(), key=lambda one: -len(one[1]))
    lines = ["present settings differ:"]
    for text, names in ordered[:_COMBINATIONS]:
        left = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"  {text}: {', '.join(names[:_NAMED])}{left}")
    left_out = len(ordered) - _COMBINATIONS
    return lines + ([f"  … and {left_out} other combinations"] if left_out > 0 else [])
