"""Clients in three languages that number their messages, as processes of their own, and the judgement of what they saw.

Each program (`counting_process.py`, `java/Counting.java`, `go/counting/main.go`) is called with a service URL, a prefix
and a rate in messages a second. It sends to the topics of `TOPICS` under the prefix, and consumes each in every subscription
of `SUBSCRIPTIONS`, with acknowledgements. It prints an event per line:

    ready | stopped                               all are connected; nothing more is sent
    sent TOPIC KEY NUMBER                         before the send
    confirmed TOPIC KEY NUMBER POSITION           its receipt
    failed TOPIC KEY NUMBER REASON                the client gave the message up
    received SUBSCRIPTION TOPIC KEY NUMBER POSITION    before the acknowledgement
    trouble TEXT                                  a consumer that ended

POSITION is `ledger:entry:index`, with index 0 for a message outside of a batch. A line on standard input ends the sending,
and its end the program. Sends have no time limit, so clients send again what has no receipt; such a message may be stored
twice.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.interop.support import wait_until

TOPICS: Final = ("single", "batched")
"""Partitioned topics: one whose producer batches by key, one whose producer does not batch."""
SUBSCRIPTIONS: Final = ("alone", "keys")
"""One Exclusive consumer of a topic, and two consumers that share its keys."""


LINES_S: Final = 300.0
"""The limit of a wait for a program's lines."""


class Name(NamedTuple):
    """A message: numbers of a topic grow, and each has one key."""

    topic: str
    key: str
    number: int


@dataclass(slots=True)
class Delivered:
    """The messages that one subscription of one topic got."""

    positions: dict[Name, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The position of each delivery of a message; twice the same one where the acknowledgement had not arrived."""
    deliveries: int = 0
    late: list[Name] = field(default_factory=list)
    """Messages that came for the first time after a later one of their key."""
    _last: dict[str, int] = field(default_factory=dict)

    def take(self, name: Name, position: str) -> None:
        """Notes a delivery."""
        self.deliveries += 1
        if name not in self.positions:
            if name.number < self._last.get(name.key, -1):
                self.late.append(name)
            self._last[name.key] = max(name.number, self._last.get(name.key, -1))
        self.positions[name].add(position)


class Counts:
    """The events of one program, judged. A message counts as received once every subscription has it."""

    def __init__(self) -> None:
        self.said: Counter[str] = Counter()
        """Lines by their first word."""
        self.confirmed: dict[Name, str] = {}
        """The position in each receipt."""
        self.troubles: list[str] = []
        """Sends that failed, consumers that ended, second receipts, and lines that no program should print."""
        self.waits_s: dict[str, list[float]] = {topic: [] for topic in TOPICS}
        """By topic: the time from each send to its receipt."""
        self._first_s: dict[str, float] = {}
        """By ledger: when its first receipt came."""
        self._pauses_s: dict[str, dict[str, float]] = {topic: {} for topic in TOPICS}
        """By topic and ledger: the longest wait of a send that began before the ledger's first receipt."""
        self._ledgers: dict[tuple[str, str], str] = {}
        """The ledger of the last receipt of each topic and key; a key has one partition."""
        self._moved: set[str] = set()
        """Ledgers that came after another one of their partition, as after an unload."""
        self._sent_s: dict[Name, float] = {}
        self._delivered = {name: {topic: Delivered() for topic in TOPICS} for name in SUBSCRIPTIONS}

    def take(self, line: str, now_s: float) -> None:
        """Notes an event that was read at `now_s`."""
        word, *rest = line.split()
        match word, rest:
            case "sent", [topic, key, number]:
                self._sent_s[Name(topic, key, int(number))] = now_s
            case "confirmed", [topic, key, number, position] if Name(topic, key, int(number)) in self._sent_s:
                name = Name(topic, key, int(number))
                self.confirmed[name] = position
                self._take_wait(name, position.partition(":")[0], self._sent_s.pop(name), now_s)
            case "received", [subscription, topic, key, number, position]:
                self._delivered[subscription][topic].take(Name(topic, key, int(number)), position)
            case (("ready" | "stopped"), []):
                pass
            case _:
                self.troubles.append(line.strip())
        # Last, since another thread reads the rest once the numbers agree.
        self.said[word] += 1

    def _take_wait(self, name: Name, ledger: str, sent_s: float, now_s: float) -> None:
        self.waits_s[name.topic].append(now_s - sent_s)
        if sent_s <= self._first_s.setdefault(ledger, now_s):
            pauses = self._pauses_s[name.topic]
            pauses[ledger] = max(pauses.get(ledger, 0.0), now_s - sent_s)
        if self._ledgers.setdefault((name.topic, name.key), ledger) != ledger:
            self._moved.add(ledger)
            self._ledgers[name.topic, name.key] = ledger

    def pauses_s(self, topic: str) -> list[float]:
        """Returns the pauses of partitions, one for each ledger but the first: the longest wait of a send around its begin.

        A partition begins a ledger when a broker opens it; these tests fill none.
        """
        return [pause_s for ledger, pause_s in self._pauses_s[topic].items() if ledger in self._moved]

    def is_complete(self) -> bool:
        """True once each send has its receipt or its failure, and each confirmed message was delivered."""
        return self.said["sent"] == self.said["confirmed"] + self.said["failed"] and not self.lost()

    def lost(self) -> list[str]:
        """Returns confirmed messages that a subscription never got, or not from the position in the receipt."""
        return [
            f"{subscription} has not got {name} from {position} but from {places.get(name, 'nowhere')}"
            for subscription, topics in self._delivered.items()
            for name, position in self.confirmed.items()
            if position not in (places := topics[name.topic].positions).get(name, ())
        ]

    def confirmed_before(self) -> list[str]:
        """Returns messages that were stored again after a copy whose receipt the client got.

        A client sends again what has no receipt, so the receipt of such a message is that of its last copy.
        """
        return [
            f"{subscription} got {name} from {places}, and its receipt is that of {position}"
            for subscription, topics in self._delivered.items()
            for name, position in self.confirmed.items()
            if (places := topics[name.topic].positions.get(name)) and position != max(places, key=_place)
        ]

    def findings(self) -> list[str]:
        """Returns a sentence for each violation."""
        places: dict[str, Name] = {}
        shared = [
            f"{name} and {places[position]} were confirmed at {position}"
            for name, position in self.confirmed.items()
            if places.setdefault(position, name) != name
        ]
        late = [
            f"{subscription} got {name} after a later one of its key"
            for subscription, topics in self._delivered.items()
            for delivered in topics.values()
            for name in delivered.late
        ]
        return [*self.troubles, *self.lost(), *shared, *late]

    def summary(self) -> str:
        """Returns the counts as a line."""
        all_delivered = [one for topics in self._delivered.values() for one in topics.values()]
        received = sum(len(one.positions) for one in all_delivered)
        doubled = sum(one.deliveries for one in all_delivered) - received
        stored = sum(len(places) - 1 for one in all_delivered for places in one.positions.values())
        slowest_s = max((wait_s for waits_s in self.waits_s.values() for wait_s in waits_s), default=0.0)
        return (
            f"{self.said['sent']} sent, {self.said['confirmed']} confirmed, {self.said['failed']} failed, "
            f"{received} received by {len(SUBSCRIPTIONS)} subscriptions, {doubled} doubled "
            f"({stored} stored again), {len(self.lost())} lost, {sum(len(one.late) for one in all_delivered)} out of order, "
            f"slowest receipt {slowest_s:.1f} s"
        )


def _place(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.split(":")))


class CountingClient:
    """A running program. Its lines are also kept in a file, each with the time at which it was read."""

    def __init__(self, command: Sequence[str], events: Path) -> None:
        self.counts = Counts()
        self._events = events
        self._errors = events.with_suffix(".err")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._events.open("w", encoding="utf-8") as kept:
            for line in self._process.stdout:
                now_s = time.time()
                kept.write(f"{now_s:.3f} {line}")
                self.counts.take(line, now_s)

    def wait_for(self, word: str, count: int = 1) -> None:
        """Waits until `count` lines have begun with `word`. AssertionError where the program ends before."""

        def has_said() -> bool:
            assert self._process.poll() is None, self._errors.read_text(encoding="utf-8")[-2000:]
            return self.counts.said[word] >= count

        wait_until(has_said, f"{count} times {word!r} in {self._events.name}", LINES_S)

    def wait_until_complete(self) -> None:
        """Waits until each send has its receipt, and each confirmed message has come."""
        wait_until(self.counts.is_complete, f"{self._events.name} has all", LINES_S)

    def stop(self) -> None:
        """Ends the sending."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Ends the program, and reads its last line."""
        self._process.kill()
        self._process.wait()
        self._reading.join()


def python_program() -> list[str]:
    """Returns the command of the program in Python, without its arguments."""
    return [sys.executable, "-m", "tests.interop.counting_process"]


def milliseconds(waits_s: Sequence[float]) -> str:
    """Returns the median, the 99th percentile and the longest as text."""
    if not waits_s:
        return "none"
    waits = sorted(1000 * wait_s for wait_s in waits_s)
    middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    return f"p50 {middle:.0f} ms, p99 {late:.0f} ms, longest {waits[-1]:.0f} ms"
