"""PartitionShares: which consumer of a Pulsar 5.0 client reads which partitions.

Stream consumers, and checkpoint consumers of a group, do not divide a topic by a subscription type. They register by name
(SCALABLE_TOPIC_SUBSCRIBE), the broker gives each a share of the partitions, and the client reads each partition with an
Exclusive consumer or a reader.

A consumer whose connection is lost keeps its share for a time: if the partitions moved at once, the returning consumer and
the new one would both subscribe, and a client of 5.0.0-M1 that is refused (ConsumerBusy) never tries again. After a restart
of the broker all consumers have lost their connection, so shares are stored (`stored_shares.py`).

Source: PIP-466, PIP-468; the answers to ordinary topics are ours, because Pulsar 5.0.1 refuses them there.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from broker.net.stored_shares import GroupKey, Share, StoredShares
from foundation.loop.clock import CallLater
from foundation.model.errors import NotAllowed
from protocol.scalable_answers import HashSegment

MEMBERS_MAX: Final = 1_000
"""Consumers of one group, absent ones too: sharing out takes 2 ms for so many."""
ABSENT_MAX: Final = 10_000
"""Consumers without a connection that keep their shares, in all groups together; the one that left first gives its up."""


@dataclass(eq=False, slots=True)
class ShareRegistration:
    """One consumer of a group."""

    group: GroupKey
    """The group."""
    name: str
    """The consumer's name; a later registration of the same name takes its place."""
    tell: Callable[[Share], None]
    """Called with each new share after the first one, while the consumer is connected."""
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

    stored: StoredShares
    """The shares in the metadata store."""
    call_later: CallLater
    """Starts the timers of absent consumers."""
    grace_s: Callable[[], float]
    """Returns the seconds for which an absent consumer keeps its share."""
    _groups: dict[GroupKey, dict[str, ShareRegistration]] = field(default_factory=dict)
    _absent: dict[ShareRegistration, None] = field(default_factory=dict)
    """Consumers without a connection, in the order in which they lost it."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _is_open: bool = False

    async def open(self) -> None:
        """Takes the stored shares over, at the first call; all their consumers are absent.

        Called before each `join`, not at the start of the broker, which it would lengthen: groups whose clients never return
        stay stored until any such client comes. MetadataError when the store cannot be read.
        """
        async with self._opening:
            if self._is_open:
                return
            stored = await self.stored.read()
            self._is_open = True
            for group, shares in stored.items():
                self._groups[group] = {
                    name: ShareRegistration(group, name, _tell_nobody, share)
                    for name, share in shares.items()
                }
            self.lose([one for members in self._groups.values() for one in members.values()])

    def join(self, registration: ShareRegistration, segments: Iterable[HashSegment]) -> None:
        """Adds a consumer and gives it its share; tells the others of their new ones.

        One of the same name is replaced and has its share taken over, so that a consumer that comes back moves nothing.
        NotAllowed above MEMBERS_MAX.
        """
        members = self._groups.get(registration.group, {})
        former = members.get(registration.name)
        if former is None and len(members) >= MEMBERS_MAX:
            raise NotAllowed(
                f"{MEMBERS_MAX} consumers share {registration.group.topic} already; no more are served"
            )
        self._groups[registration.group] = members
        before = _shares(members)
        if former is not None:
            registration.share = former.share
            self._absent.pop(former, None)
        members[registration.name] = registration
        after = share_out(segments, _shares(members))
        # Not told: the answer to the command has it.
        registration.share = after[registration.name]
        _tell(members, after)
        if after != before:
            self.stored.put(registration.group, after)

    def leave(self, registration: ShareRegistration) -> None:
        """Removes a consumer and gives its share to the others. One that was replaced changes nothing."""
        self._leave((registration,))

    def lose(self, registrations: Iterable[ShareRegistration]) -> None:
        """Keeps the shares of consumers whose connection was lost until they join again or the time is over."""
        lost = [one for one in registrations if self._is_member(one)]
        if not lost:
            return
        for registration in lost:
            registration.tell = _tell_nobody
            self._absent[registration] = None
        # One timer for a connection, because each one in a thousand of its own would share the group out anew.
        self.call_later(self.grace_s(), partial(self._end_absences, lost))
        above = len(self._absent) - ABSENT_MAX
        if above > 0:
            self._leave(list(islice(self._absent, above)))

    def _end_absences(self, lost: Iterable[ShareRegistration]) -> None:
        self._leave([one for one in lost if one in self._absent])

    def _is_member(self, registration: ShareRegistration) -> bool:
        return self._groups.get(registration.group, {}).get(registration.name) is registration

    def _leave(self, registrations: Iterable[ShareRegistration]) -> None:
        """Removes consumers; each group is shared out once."""
        leaving: dict[GroupKey, list[ShareRegistration]] = {}
        for registration in registrations:
            if self._is_member(registration):
                leaving.setdefault(registration.group, []).append(registration)
        for group, gone in leaving.items():
            members = self._groups[group]
            segments = [segment for member in members.values() for segment in member.share]
            for registration in gone:
                del members[registration.name]
                self._absent.pop(registration, None)
            after = share_out(segments, _shares(members))
            _tell(members, after)
            if not members:
                del self._groups[group]
            self.stored.put(group, after)

    def __len__(self) -> int:
        """Returns the number of groups."""
        return len(self._groups)


def _shares(members: Mapping[str, ShareRegistration]) -> dict[str, Share]:
    return {name: member.share for name, member in members.items()}


def _tell_nobody(share: Share) -> None:
    """Takes the place of `ShareRegistration.tell` while a consumer has no connection."""


def _tell(members: Mapping[str, ShareRegistration], shares: Mapping[str, Share]) -> None:
    changed = [members[name] for name, share in shares.items() if members[name].share != share]
    # Those that lose segments first, so that a segment is more often free when its next reader comes.
    for member in sorted(changed, key=lambda one: len(shares[one.name]) - len(one.share)):
        member.share = shares[member.name]
        member.tell(member.share)
