"""Columns: the numbers of the families in rows, so that a whole topic is read, compared and printed by a few calls into C.

A row begins with the numbers of this moment. The row of a window follows it: rates, then growths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter, sub
from typing import Final, TypeAlias

from broker.numbers.family import Family

Number: TypeAlias = int | float
"""A value of a series."""
Row: TypeAlias = tuple[Number, ...]
"""The numbers of one topic, subscription, consumer or producer, in the order of its `Columns`."""

MAY_FALL: Final = ("ledger.stats.entries_read", "ledger.stats.bytes_read")
"""Entries that were read and given back are subtracted, so these do not begin again when they fall."""


class Columns:
    """The place of each number in a row."""

    def __init__(
        self,
        families: Sequence[Family],
        *computed: str,
        extra: Iterable[str] = (),
        missing: Mapping[str, Number] | None = None,
    ) -> None:
        """`computed` are sources that follow those read by their chain of attributes, in this order.

        `extra` are sources whose values the caller appends to each printed row. `missing` has the values of numbers that an
        object does not have, where these are not 0.
        """
        self._families = families
        extra = [*extra]
        by_time: dict[str, list[str]] = {"now": [], "second": [], "window": []}
        for family in families:
            if family.source not in extra and family.source not in by_time[family.over]:
                by_time[family.over].append(family.source)
        found = dict.fromkeys(source for sources in by_time.values() for source in sources)
        chains = [source for source in found if source not in computed]
        self.names = (*chains, *computed)
        """The sources of the numbers of a moment."""
        self.read: Callable[[object], Row] = attrgetter(*chains) if len(chains) > 1 else _no_numbers
        """Returns the numbers of an object that are read by their chains; the computed ones follow them."""
        self._missing = missing or {}
        # Rates first, so that a slice has them.
        compared = [*dict.fromkeys((*by_time["second"], *by_time["window"]))]
        self._compared = _picker([self.names.index(source) for source in compared])
        self._may_fall = [source in MAY_FALL for source in compared]
        self._rates = len(by_time["second"])
        self._growths = _picker([compared.index(source) for source in by_time["window"]])
        self.no_window: Row = (0.0,) * self._rates + (0,) * len(by_time["window"])
        """The row of a window without growth."""
        places = [("now", name) for name in self.names]
        places += [("second", name) for name in by_time["second"]] + [
            ("window", name) for name in by_time["window"]
        ]
        places += [("now", name) for name in extra]
        self._places = {name: place for place, name in enumerate(places)}
        self.nothing: Row = (0,) * len(places)
        """The sum over no rows."""

    def row(self, values: Mapping[str, Number]) -> Row:
        """Returns a row of a moment from values by their source."""
        return tuple([values.get(name, self._missing.get(name, 0)) for name in self.names])

    def place(self, family: Family) -> int:
        """Returns the place of the family's value in a printed row."""
        return self._places[family.over, family.source]

    def picker(self, names: Mapping[str, str]) -> Callable[[Row], dict[str, Number]]:
        """Returns a function that picks the numbers of a window's row; `names` has the families by the words for them."""
        by_name = {family.name: family for family in self._families}
        pick = _picker([self.place(by_name[name]) - len(self.names) for name in names.values()])
        return lambda row: dict(zip(names, pick(row), strict=True))

    def growth(self, before: Row, now: Row, seconds: float) -> Row:
        """Returns the row of the window between two rows; a counter that fell was begun again and counts from 0."""
        later, earlier = self._compared(now), self._compared(before)
        if later == earlier:
            return self.no_window
        grown = tuple(map(sub, later, earlier))
        if min(grown) < 0:
            grown = tuple(
                [
                    growth if growth >= 0 or may_fall else number
                    for growth, may_fall, number in zip(grown, self._may_fall, later, strict=True)
                ]
            )
        return tuple([growth / seconds for growth in grown[: self._rates]]) + self._growths(grown)


def _picker(places: list[int]) -> Callable[[Row], Row]:
    # A getter of one place returns the number itself, and there is none of no place.
    return itemgetter(*places) if len(places) > 1 else lambda row: tuple([row[place] for place in places])


def _no_numbers(_: object) -> Row:
    return ()
