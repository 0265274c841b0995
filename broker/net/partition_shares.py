"""PartitionShares: which consumer of a Pulsar 5.0 client reads which partitions.

Stream consumers, and checkpoint consumers of a group, do not divide a topic by a subscription type. They register by name
(SCALABLE_TOPIC_SUBSCRIBE), the broker gives each a share of the partitions, and the client reads each partition with an
Exclusive consumer or a reader. A share is a hint, so nothing is stored: a second reader of a partition is refused by its
subscription. A registration ends with its connection.

Source: PIP-466, PIP-468; the answers to ordinary topics are ours, because Pulsar 5.0.1 refuses them there.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.scalable_answers import HashSegment

Share = tuple[HashSegment, ...]
"""The partitions of one consumer, by number."""


class GroupKey(NamedTuple):
    """The consumers that share one topic."""

    topic: str
    """Full name without a partition."""
    subscription: str
    """Name of the subscription, or of the group of checkpoint consumers."""
    consumer_type: int
    """STREAM or CHECKPOINT of the wire."""


@dataclass(eq=False, slots=True)
class ShareRegistration:
    """One consumer of a group."""

    group: GroupKey
    """The group."""
    name: str
    """The consumer's name; a later registration of the same name takes its place."""
    tell: Callable[[Share], None]
    """Called with each new share after the first one."""
    share: Share = ()
    """The present share."""


def share_out(segments: Iterable[HashSegment], before: Mapping[str, Share]) -> dict[str, Share]:
    """Returns the share of each name in `before`: sizes differ by one at most, and as few segments move as can be.

    With more names than segments some get none. Names and segments are taken in their order, so that equal inputs have
    equal results.
    """
    if not before:
        return {}
    free = {segment.number: segment for segment in sorted(segments)}
    size, larger = divmod(len(free), len(before))
    kept: dict[str, list[HashSegment]] = {}
    # The names with the largest shares first: they keep one more where not all shares can be equal.
    for place, name in enumerate(sorted(before, key=lambda one: (-len(before[one]), one))):
        numbers = [segment.number for segment in before[name] if segment.number in free]
        # By number, because the ranges of hashes change when partitions are added.
        kept[name] = [free.pop(number) for number in numbers[: size + (place < larger)]]
    poorest = [(len(held), name) for name, held in kept.items()]
    heapq.heapify(poorest)
    for segment in free.values():
        length, name = poorest[0]
        kept[name].append(segment)
        heapq.heapreplace(poorest, (length + 1, name))
    return {name: tuple(sorted(held)) for name, held in kept.items()}


@dataclass(slots=True)
class PartitionShares:
    """All groups of a broker."""

    _groups: dict[GroupKey, dict[str, ShareRegistration]] = field(default_factory=dict)

    def join(self, registration: ShareRegistration, segments: Iterable[HashSegment]) -> None:
        """Adds a consumer and gives it its share; tells the others of their new ones.

        One of the same name is replaced and has its share taken over, so that a consumer that comes back moves nothing.
        """
        members = self._groups.setdefault(registration.group, {})
        former = members.get(registration.name)
        if former is not None:
            registration.share = former.share
        members[registration.name] = registration
        shares = share_out(segments, {name: member.share for name, member in members.items()})
        registration.share = shares.pop(registration.name)
        _tell(members, shares)

    def leave(self, registration: ShareRegistration) -> None:
        """Removes a consumer and gives its share to the others. One that was replaced changes nothing."""
        members = self._groups.get(registration.group, {})
        if members.get(registration.name) is not registration:
            return
        segments = [segment for member in members.values() for segment in member.share]
        del members[registration.name]
        if members:
            _tell(members, share_out(segments, {name: member.share for name, member in members.items()}))
        else:
            del self._groups[registration.group]

    def __len__(self) -> int:
        """Returns the number of groups."""
        return len(self._groups)


def _tell(members: Mapping[str, ShareRegistration], shares: Mapping[str, Share]) -> None:
    changed = [members[name] for name, share in shares.items() if members[name].share != share]
    # Those that lose segments first, so that a segment is more often free when its next reader comes.
    for member in sorted(changed, key=lambda one: len(shares[one.name]) - len(one.share)):
        member.share = shares[member.name]
        member.tell(member.share)
