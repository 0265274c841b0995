"""Messages between clients and bookies that are late, lost or come twice, and a client's end of a connection.

Each message is on its own: it may overtake others, and a request whose caller has given up may still arrive. That is
worse than TCP, on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bookkeeper.client.ledger_client import AddDone, BatchReadDone, EntryParts, ReadDone
from bookkeeper.client.result_codes import OK, UNREACHABLE
from protocol.bookie_frame import LAST_ENTRY
from tests.sim.bookie import SimBookie
from tests.sim.loop import SimLoop

Reply = Callable[..., None]
REQUEST_TIMEOUT_S = 1.0


@dataclass
class Faults:
    """Probabilities per message."""

    drop: float = 0.0
    slow: float = 0.0
    """Of a message that takes up to two seconds."""
    twice: float = 0.0


class Network:
    def __init__(self, loop: SimLoop, rng: random.Random, faults: Faults) -> None:
        self.loop = loop
        self.rng = rng
        self.faults = faults
        self.cut: set[tuple[str, str]] = set()
        """(client, bookie) without a way to each other."""
        self.stalled_until_s: dict[str, float] = {}
        """Clients whose messages wait until then on their way out, and arrive."""
        self.sent = self.dropped = self.doubled = 0

    def send(self, client: str, bookie: str, deliver: Callable[[], None]) -> None:
        self.sent += 1
        copies = 1
        if self.rng.random() < self.faults.twice:
            self.doubled += 1
            copies = 2
        for _ in range(copies):
            if self.rng.random() < self.faults.drop or (client, bookie) in self.cut:
                self.dropped += 1
                continue
            held_s = max(self.stalled_until_s.get(client, 0.0) - self.loop.time(), 0.0)
            self.loop.call_later(held_s + self._delay(), deliver)

    def _delay(self) -> float:
        if self.rng.random() < self.faults.slow:
            return self.rng.uniform(0.05, 2.0)
        return self.rng.uniform(0.0002, 0.004)


class Client:
    """A process with a ledger client in it. Once crashed it hears and says nothing any more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.crashed = False


class SimConnection:
    """One client's connection to one bookie, as the ledger client sees it."""

    def __init__(self, client: Client, bookie: SimBookie, network: Network) -> None:
        self._client = client
        self._bookie = bookie
        self._network = network

    @property
    def reachable(self) -> bool:
        return self._bookie.up and (self._client.name, self._bookie.address) not in self._network.cut

    def add(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[EntryParts],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """Each entry is a request of its own, as on the wire."""
        left, worst = len(entry_ids), OK

        def answered(rc: int, _: int) -> None:
            nonlocal left, worst
            left -= 1
            worst = worst or rc
            if not left:
                done(worst, entry_ids[0])

        for entry_id, parts in zip(entry_ids, entries, strict=True):
            self._ask(
                partial(self._add, ledger_id, entry_id, b"".join(parts), master_key, recovery),
                answered,
                (UNREACHABLE, entry_id),
            )

    def _add(
        self, ledger_id: int, entry_id: int, entry: bytes, master_key: bytes, recovery: bool, reply: AddDone
    ) -> None:
        self._bookie.add(ledger_id, entry_id, entry, master_key, recovery, reply)

    def read(self, ledger_id: int, entry_id: int, done: ReadDone) -> None:
        self._ask(lambda reply: self._bookie.read(ledger_id, entry_id, reply), done, (UNREACHABLE, b""))

    def batch_read(
        self, ledger_id: int, first: int, count_max: int, bytes_max: int, done: BatchReadDone
    ) -> None:
        self._ask(
            lambda reply: self._bookie.batch_read(ledger_id, first, count_max, reply),
            done,
            (UNREACHABLE, []),
        )

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        self._ask(
            lambda reply: self._bookie.fence(ledger_id, master_key, entry_id, reply),
            done,
            (UNREACHABLE, b""),
        )

    def file_of(self, ledger_id: int, entry_id: int) -> str:
        """Returns "": there is no file."""
        return ""

    def delete(self, ledger_id: int, done: Callable[[int, int], None]) -> None:
        """Not part of the wire."""
        done(0, ledger_id)

    async def close(self) -> None:
        """Nothing to give back."""

    def _ask(self, request: Callable[[Reply], None], done: Reply, timed_out: tuple[object, ...]) -> None:
        """Sends it; `done` is called once: with the first answer that comes, or with `timed_out`."""
        if self._client.crashed:
            return
        network, names = self._network, (self._client.name, self._bookie.address)
        answered = False

        def answer(*values: object) -> None:
            nonlocal answered
            if not answered and not self._client.crashed:
                answered = True
                timer.cancel()
                done(*values)

        def arrive() -> None:
            if self._bookie.up:
                request(lambda *values: network.send(*names, lambda: answer(*values)))

        timer = network.loop.call_later(REQUEST_TIMEOUT_S, answer, *timed_out)
        network.send(*names, arrive)
