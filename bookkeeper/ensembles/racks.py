"""Racks and groups of bookies, and the choice of bookies by them. Pure but for `BookieRacks`, which follows the store.

An administrator names the rack of each bookie, and its group, under Pulsar's key `/bookies`. The laws:

1. A ledger of a namespace with an affinity takes bookies of its primary groups. Where these are too few for it, those of
   its secondary groups too, and where both are, bookies without a group. Bookies of other groups are never taken.
2. Bookies of one write set are in as many racks as can be had. A bookie without a rack is in the default rack.

A ledger's own metadata names its groups as Pulsar's does, so that each later choice for it obeys them too. Pulsar's names:
BookiesRackConfiguration; IsolatedBookieEnsemblePlacementPolicy is law 1, RackawareEnsemblePlacementPolicy law 2.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import MetadataStore

KEY: Final = "/bookies"
"""Pulsar's key of all racks, one value."""
CUSTOM_KEY: Final = "EnsemblePlacementPolicyConfig"
"""Of the groups in the custom metadata of a ledger."""
_POLICY_CLASS: Final = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_PRIMARY: Final = "isolationBookieGroups"
_SECONDARY: Final = "secondaryIsolationBookieGroups"
EVERY_GROUP: Final = "*"
"""As a primary group: no bookie is left out."""
_NAME: Final = ""

Racks = dict[str, dict[str, dict[str, object]]]
"""The stored value: by group and bookie, the members `rack` and `hostname`."""


class Affinity(NamedTuple):
    """Groups of bookies for a ledger."""

    primary: frozenset[str]
    """Groups that are taken first."""
    secondary: frozenset[str]
    """Groups for what the first ones lack."""

    @classmethod
    def of(cls, primary: str | None, secondary: str | None) -> Affinity | None:
        """Returns the groups out of texts with commas; None where none is named."""
        groups = _names(primary), _names(secondary)
        return cls(*groups) if any(groups) else None

    def custom(self) -> dict[str, bytes]:
        """Returns the part of a ledger's custom metadata that names the groups."""
        properties = {
            _PRIMARY: ",".join(sorted(self.primary)),
            _SECONDARY: ",".join(sorted(self.secondary)),
        }
        value = {"policyClass": _POLICY_CLASS, "properties": properties}
        return {CUSTOM_KEY: json.dumps(value, separators=(",", ":")).encode()}


def _names(text: str | None) -> frozenset[str]:
    return frozenset(name.strip() for name in (text or "").split(",") if name.strip())


def affinity_of(custom: Mapping[str, bytes]) -> Affinity | None:
    """Returns the groups that a ledger's custom metadata names; None for none, and for another policy's."""
    value = custom.get(CUSTOM_KEY)
    if value is None:
        return None
    try:
        properties = json.loads(value)["properties"]
        return Affinity.of(properties.get(_PRIMARY), properties.get(_SECONDARY))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Placement(NamedTuple):
    """The demands on bookies for the free positions of an ensemble."""

    racks: Racks
    """Of all bookies, by group."""
    affinity: Affinity | None
    """None: bookies of every group fit."""
    members: Sequence[str | None]
    """The ensemble; None at the positions that are to be filled."""
    write_quorum: int
    """Neighbours of a position that share entries with it, itself included."""

    def allowed(self, bookies: Sequence[str], count: int) -> list[str]:
        """Returns those bookies that may be taken, in their order (law 1)."""
        affinity = self.affinity
        if affinity is None or EVERY_GROUP in affinity.primary:
            return list(bookies)
        taken: list[str] = []
        fits: list[Callable[[set[str]], bool]] = [
            lambda groups: not groups.isdisjoint(affinity.primary),
            lambda groups: not groups.isdisjoint(affinity.secondary),
            lambda groups: not groups,
        ]
        for fit in fits:
            if len(taken) < count:
                taken += [one for one in bookies if one not in taken and fit(self._groups_of(one))]
        return [one for one in bookies if one in taken]

    def spread(self, bookies: Sequence[str], count: int) -> tuple[str, ...]:
        """Returns at most `count` of the bookies, the first one for the first free position (law 2).

        Among equal ones the earlier is taken.
        """
        rack_of = {
            name: str(info.get("rack", "")).strip("/")
            for group in self.racks.values()
            for name, info in group.items()
        }
        if not rack_of:
            return tuple(bookies[:count])
        members, left, fresh = list(self.members), list(bookies), list[str]()
        for position in [position for position, member in enumerate(members) if member is None][:count]:
            if not left:
                break
            near = [rack_of.get(name) for name in self._neighbours(members, position)]
            chosen = min(left, key=lambda name: near.count(rack_of.get(name)))
            left.remove(chosen)
            members[position] = chosen
            fresh.append(chosen)
        return tuple(fresh)

    def _neighbours(self, members: Sequence[str | None], position: int) -> list[str]:
        """Returns the members that share a write set with the position."""
        size, reach = len(members), self.write_quorum - 1
        near = {(position + step) % size for step in range(-reach, reach + 1)} - {position}
        return [name for one in near if (name := members[one]) is not None]

    def _groups_of(self, bookie: str) -> set[str]:
        return {group for group, bookies in self.racks.items() if bookie in bookies}


async def read_racks(store: MetadataStore) -> Racks:
    """Returns what is stored; none where it cannot be read, because a copy in any rack is better than none."""
    found = await store.get(KEY)
    try:
        return {} if found is None else parse_racks(found.value)
    except ValueError:
        return {}


class BookieRacks:
    """The racks that an administrator has stored; call `open` first."""

    def __init__(self, store: MetadataStore) -> None:
        self._stored: Documents[Racks] = Documents(store, KEY, parse_racks, _encode, levels=0)

    @property
    def racks(self) -> Racks:
        """By group and bookie, `rack` and `hostname`. Only for reading."""
        return self._stored.values.get(_NAME, {})

    async def open(self) -> None:
        """Reads them; those of a shared store follow it. Raises MetadataError."""
        await self._stored.open()

    async def close(self) -> None:
        """Follows the store no longer."""
        await self._stored.close()

    async def change(self, changed: Callable[[Racks], Racks]) -> None:
        """Stores what `changed` makes of the newest racks. It may be called again, and raise to end the change."""
        await self._stored.change(_NAME, lambda before: changed(before or {}))

    def place(
        self, custom: Mapping[str, bytes], members: Sequence[str | None], write_quorum: int
    ) -> Placement:
        """Returns the demands on bookies of a ledger with this custom metadata."""
        return Placement(self.racks, affinity_of(custom), members, write_quorum)


def parse_racks(data: bytes) -> Racks:
    """Reads the stored value. Raises ValueError."""
    found = json.loads(data)
    groups = found.values() if isinstance(found, dict) else [None]
    for group in groups:
        if not isinstance(group, dict) or not all(isinstance(info, dict) for info in group.values()):
            raise ValueError("an object of groups of bookies is expected")
    return dict(found)


def _encode(racks: Racks, _before: Racks | None) -> bytes:
    return json.dumps(racks, separators=(",", ":")).encode()
