"""Family: the description of one number and of its metric family, and short constructors for the tables.

`topic_families.py` and `broker/metrics/broker_families.py` hold the tables. Names are Pulsar's, so that existing boards
work; `pulsar_ml_cache_x_` marks ours. A new family is one line there and one in `docs/reference/metrics.md`; a test compares
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
"""The types of the Prometheus text format; summaries are made in `collectors.py`."""
Over = Literal["now", "second", "window"]
"""The time of a value: this moment, or the growth of a counter in the last whole window, per second or in all of it."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family."""

    name: str
    """The name in the text format, with `_total` for a counter."""
    kind: Kind
    """Printed after `# TYPE`."""
    source: str
    """The chain of attributes that leads to the value; the module's docstring tells where it begins."""
    help: str
    """Printed after `# HELP`, and the meaning in docs/reference/metrics.md."""
    zero: bool = False
    """True: also print 0 with the cluster alone, so that an idle broker shows up on the boards."""
    sums: bool = True
    """False for means and limits, which have no sum over the topics of a namespace."""
    label: str = ""
    """The label whose values are the keys of the source, a mapping; several labels, with tuples as keys, by spaces."""
    values: tuple[str, ...] = ()
    """Label values that are printed even before their first count."""
    over: Over = "now"
    """The time of the value."""


def gauge(name: str, source: str, text: str, *, zero: bool = False, sums: bool = True) -> Family:
    """Makes a family whose value may fall."""
    return Family(name, "gauge", source, text, zero, sums)


def counter(name: str, source: str, text: str) -> Family:
    """Makes a family that counts since the start of the broker."""
    return Family(name, "counter", source, text)


def rate(name: str, source: str, text: str, *, zero: bool = False) -> Family:
    """Makes a family of the growth of `source` per second in the last whole window."""
    return Family(name, "gauge", source, text, zero, over="second")


def grown(name: str, source: str, text: str) -> Family:
    """Makes a family of the growth of `source` in the last whole window."""
    return Family(name, "gauge", source, text, over="window")


def by(label: str, values: str, name: str, source: str, text: str) -> Family:
    """Makes a counter for each key of a mapping; `values` are label values separated by spaces."""
    return Family(name, "counter", source, text, label=label, values=tuple(values.split()))


def histogram(label: str, values: str, name: str, source: str, text: str) -> Family:
    """Makes a family of times, printed in seconds, with one label."""
    return Family(name, "histogram", source, text, label=label, values=tuple(values.split()))
