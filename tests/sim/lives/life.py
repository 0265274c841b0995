"""Lives: what clients were told about each topic, and by which clock, so that every removal can be judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.sim.loop import SimLoop

BASE_MS = 1_700_000_000_000
LIFE_S = 150.0
"""Simulated seconds with faults."""


class WallClock:
    """The brokers' wall clock: simulated time with an offset that jumps both ways."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._offsets: list[tuple[float, int]] = [(0.0, BASE_MS)]
        """(simulated time, ms that are added from then on)."""

    @property
    def jumps(self) -> int:
        return len(self._offsets) - 1

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000) + self._offsets[-1][1]

    def jump(self, ms: int) -> None:
        self._offsets.append((self._loop.time(), self._offsets[-1][1] + ms))

    def advance_ms(self, since_s: float) -> int:
        """Returns by how much the clock has advanced between any two moments since then, at most."""
        now_s = self._loop.time()
        lowest: int | None = None
        most = 0
        for number, (from_s, offset) in enumerate(self._offsets):
            last = number + 1 == len(self._offsets)
            to_s = now_s if last else self._offsets[number + 1][0]
            if to_s < since_s:
                continue
            start = int(max(from_s, since_s) * 1000) + offset
            lowest = start if lowest is None else min(lowest, start)
            most = max(most, int(to_s * 1000) + offset - lowest)
        return most


@dataclass
class Sent:
    """One confirmed message."""

    body: bytes
    at_s: float
    """Simulated time of the SEND."""
    acked: set[str] = field(default_factory=set)
    """Subscriptions that have acknowledged it, or asked for that: a crash may undo it."""


@dataclass(frozen=True)
class Kind:
    """A kind of topic."""

    name: str
    subscriptions: tuple[str, ...]
    never_acks: frozenset[str] = frozenset()
    ttl_s: int = 0
    """0 = messages do not expire."""
    keep_minutes: int = 0
    """Retention by time, without a limit by size; -1 = for ever, 0 = none."""
    partitions: int = 0
    namespace: str = "sim/lives"
    leaks: bool = False
    """Its list is lost once, as if somebody had removed the node by hand."""
    shadowed: frozenset[str] = frozenset()
    """Those of its subscriptions that are on a shadow of the topic."""
    tiered: bool = False
    """Its closed ledgers are copied to object storage at once, and leave the bookies soon."""
    keys: int = 0
    """Keys of its messages, which are compacted now and then; 0 = none."""
    rates: tuple[int, ...] = ()
    """Publish rates, messages a second, of which it gets one after the other; 0 = no limit."""

    @property
    def keep_ms(self) -> int:
        return self.keep_minutes * 60_000 if self.keep_minutes >= 0 else -1


KINDS = (
    Kind("plain", ("quick", "slow")),
    Kind("expiring", ("quick", "never"), frozenset({"never"}), ttl_s=20),
    Kind("kept", ("quick",), keep_minutes=1),
    Kind("both", ("never",), frozenset({"never"}), ttl_s=20, keep_minutes=1),
    Kind("forever", ("quick",), keep_minutes=-1),
    Kind("stuck", ("quick", "never"), frozenset({"never"})),
    Kind("parts", ("quick",), partitions=2),
    Kind("brief", ("quick",), namespace="sim/brief"),
    Kind("leaking", ("quick",), leaks=True),
    Kind("keyed", ("quick",), keys=16),
    Kind("shadowed", ("quick", "fronted"), shadowed=frozenset({"fronted"})),
    Kind("fronted", ("quick", "never"), frozenset({"never"}), shadowed=frozenset({"quick", "never"})),
)

TIERED_KINDS = (
    Kind("moved", ("quick", "slow"), tiered=True),
    Kind("archive", ("quick", "never"), frozenset({"never"}), tiered=True),
    Kind("aged", ("quick", "never"), frozenset({"never"}), ttl_s=20, tiered=True),
    Kind("retained", ("quick",), keep_minutes=1, tiered=True),
    Kind("parts", ("quick", "never"), frozenset({"never"}), partitions=2, tiered=True),
    Kind("fronted", ("quick", "never"), frozenset({"never"}), shadowed=frozenset({"never"}), tiered=True),
    Kind("brief", ("quick", "never"), frozenset({"never"}), namespace="sim/brief", tiered=True),
    Kind("plain", ("quick", "slow")),
)
"""Of histories with object storage."""

LIMITED_KINDS = (
    Kind("limited", ("quick", "slow"), rates=(1, 1, 3, 0)),
    Kind("aged", ("quick", "never"), frozenset({"never"}), ttl_s=20, rates=(2, 5, 0)),
    Kind("parts", ("quick",), partitions=2, rates=(1, 2)),
    Kind("brief", ("quick",), namespace="sim/brief", rates=(1, 4, 0)),
    Kind("plain", ("quick",)),
)
"""Of histories with publish rates that come and go."""


@dataclass
class Life:
    """One topic from its creation to its deletion; a later one of the name is another life."""

    number: int
    kind: Kind
    sent: dict[int, Sent] = field(default_factory=dict)
    """Confirmed messages by number."""
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    """Numbers of messages by (ledger id, entry id)."""
    ended: bool = False
    """True once somebody has asked for its deletion."""
    leaked: bool = False
    """True once its list is lost."""
    rate_in_doubt: bool = False
    """True while a change of its publish rate has no answer: it may act at any time until the next change."""

    @property
    def name(self) -> str:
        """Name of the topic that has the messages."""
        base = f"persistent://{self.kind.namespace}/{self.kind.name}"
        return f"{base}-partition-0" if self.kind.partitions else base

    def name_for(self, subscription: str) -> str:
        """Name of the topic that has the subscription."""
        return f"{self.name}-shadow" if subscription in self.kind.shadowed else self.name

    def key_of(self, number: int) -> str | None:
        """Returns the key of a message; None for topics without keys."""
        return f"k{number % self.kind.keys}" if self.kind.keys else None

    def in_ledger(self, ledger_id: int) -> Iterator[Sent]:
        """Yields the confirmed messages of a ledger."""
        return (self.sent[number] for (its, _), number in self.positions.items() if its == ledger_id)

    def may_be_expired(self, one: Sent, clock: WallClock) -> bool:
        return self.kind.ttl_s > 0 and clock.advance_ms(one.at_s) > self.kind.ttl_s * 1000

    def is_retained(self, one: Sent, clock: WallClock) -> bool:
        """True while no broker may have found that retention is over."""
        keep_ms = self.kind.keep_ms
        return keep_ms < 0 or (keep_ms > 0 and clock.advance_ms(one.at_s) < keep_ms)

    def needed_by(self, one: Sent, clock: WallClock) -> list[str]:
        """Returns the subscriptions that must still get the message."""
        if self.may_be_expired(one, clock):
            return []
        return [name for name in self.kind.subscriptions if name not in one.acked]
