"""Four ways in which ledgers lost entries in earlier releases of BookKeeper, each as a script of messages.

The first two were found with TLA+ (issues 2614 and 2615), the last two are what running without a journal did to
fences and entries (BP-46).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial

import pytest

from bookkeeper.client.digest import master_key, seal
from bookkeeper.client.ledger_client import AddDone, EntryAdds, EntryParts, ReadDone
from bookkeeper.ensembles.bookies import BookieSet
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.compose.ledger_settings import LedgerSettings, QuarantineSettings
from foundation.model.errors import PersistenceError
from protocol.bookie_frame import LAST_ENTRY
from protocol.ledger_metadata import LedgerMetadata
from tests.sim.bookie import SimBookie
from tests.sim.breakages import broken
from tests.sim.loop import SimLoop, run
from tests.sim.network import Client, Faults, Network, SimConnection
from tests.sim.simulation import read

LEDGER = 7
OK, FENCED = 0, 104


class ScriptedConnection(SimConnection):
    """Messages of a kind that is held wait for the script."""

    def __init__(self, client: Client, bookie: SimBookie, network: Network) -> None:
        super().__init__(client, bookie, network)
        self.held: dict[str, list[Callable[[], None]]] = {}

    def hold(self, *kinds: str) -> None:
        for kind in kinds:
            self.held[kind] = []

    def release(self, kind: str) -> None:
        for message in self.held.pop(kind):
            message()

    def _pass(self, kind: str, message: Callable[[], None]) -> None:
        if kind in self.held:
            self.held[kind].append(message)
        else:
            message()

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
        plain = partial(super().add, master_key=master_key, recovery=recovery, done=done)
        self._pass("add", lambda: plain(ledger_id, entry_ids, entries))

    def fence(self, ledger_id: int, master_key: bytes, done: ReadDone, entry_id: int = LAST_ENTRY) -> None:
        plain = super().fence
        kind = "fence" if entry_id == LAST_ENTRY else "fencing read"
        self._pass(kind, lambda: plain(ledger_id, master_key, done, entry_id))


class Scene:
    """Bookies b0, b1, ..., a writer and a recovering client, each with connections of its own."""

    def __init__(self, loop: SimLoop, bookies: int, quorums: tuple[int, int, int]) -> None:
        self.loop = loop
        rng = random.Random(1)
        self.bookies = [SimBookie(f"b{number}", loop, rng) for number in range(bookies)]
        self._network = Network(loop, rng, Faults())
        self._store = MemoryMetadataStore()
        self._settings = LedgerSettings(*quorums)
        self.writer, self.to = self._client("writer")
        self.recoverer, self.recovering = self._client("recoverer")
        self._adds: EntryAdds | None = None
        self.answers: dict[int, int] = {}
        self._length = 0

    def _client(self, name: str) -> tuple[Ledgers, list[ScriptedConnection]]:
        client = Client(name)
        connections = {
            bookie.address: ScriptedConnection(client, bookie, self._network) for bookie in self.bookies
        }
        ledgers = Ledgers(
            self._store,
            BookieSet(
                connections,
                connections.__getitem__,
                now_ns=self.loop.now_ns,
                quarantine=QuarantineSettings(),
            ),
            self._settings,
            call_soon=self.loop.call_soon,
            call_later=self.loop.call_later,
        )
        return ledgers, list(connections.values())

    async def begin(self) -> None:
        self._adds = self.writer.writer(await self.writer.create(LEDGER, {}))

    def add(self, entry_id: int, lac: int) -> None:
        assert self._adds is not None
        self._length += 5
        parts = seal(LEDGER, entry_id, lac, self._length, b"", b"body%d" % entry_id)
        self._adds.add(
            LEDGER,
            (entry_id,),
            [parts],
            master_key=master_key(b""),
            recovery=False,
            done=lambda rc, number: self.answers.__setitem__(number, rc),
        )

    async def recover(self) -> LedgerMetadata:
        closed = await self.recoverer.recover(LEDGER)
        assert closed is not None
        return closed


def play(script: Callable[[Scene], Coroutine[object, object, None]], bookies: int, *quorums: int) -> None:
    loop = SimLoop()

    async def main() -> None:
        ensemble, write, ack = quorums
        await script(Scene(loop, bookies, (ensemble, write, ack)))

    run(main(), loop)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_issue_2614_bookie_that_answered_a_recovery_accepts_no_add() -> None:
    """It need not have heard the first fence for that: two of three are enough, and it was not among them."""

    async def script(scene: Scene) -> None:
        await scene.begin()
        for number in (1, 2):
            scene.to[number].hold("add")
        scene.add(0, -1)  # reaches b0 alone
        await asyncio.sleep(0.1)
        scene.recovering[2].hold("fence")
        scene.recovering[0].hold("fencing read")
        assert (await scene.recover()).last_entry_id == -1
        scene.to[2].release("add")
        await asyncio.sleep(0.1)
        assert scene.answers == {0: FENCED}

    play(script, 3, 3, 3, 2)


def test_issue_2615_recovery_starts_in_the_last_segment() -> None:
    async def script(scene: Scene) -> None:
        await scene.begin()
        for entry_id in range(3):
            scene.add(entry_id, -1)  # none of the entries says that others are confirmed
            await asyncio.sleep(0.1)
        scene.bookies[0].crash()
        scene.to[1].hold("add")
        scene.to[2].hold("add")
        scene.add(3, 2)
        await asyncio.sleep(2.0)  # b2 has taken b0's place, and has nothing
        assert scene.answers == {0: OK, 1: OK, 2: OK}
        closed = await scene.recover()
        assert [(segment.first_entry_id, segment.members) for segment in closed.segments] == [
            (0, ("b0", "b1")),
            (3, ("b2", "b1")),
        ]
        assert (closed.last_entry_id, closed.length) == (2, 15)
        assert list(scene.bookies[2].entries) == []
        entries, error = await read(scene.recoverer, 0, 2)
        assert error is None
        assert [bytes(entry.body) for entry in entries] == [b"body0", b"body1", b"body2"]

    play(script, 3, 2, 2, 2)


def test_fence_survives_a_crash_of_its_bookie() -> None:
    async def script(scene: Scene) -> None:
        await scene.begin()
        scene.recovering[2].hold("fence", "fencing read")
        assert (await scene.recover()).last_entry_id == -1
        scene.bookies[0].crash()
        scene.bookies[0].start()
        scene.to[1].hold("add")
        scene.add(0, -1)  # b2 was never fenced; with b0 it would be acknowledged
        await asyncio.sleep(0.1)
        assert scene.answers == {0: FENCED}

    play(script, 3, 3, 3, 2)


def test_lost_entries_of_a_bookie_do_not_shorten_the_ledger() -> None:
    async def script(scene: Scene) -> None:
        await scene.begin()
        scene.to[2].hold("add")
        scene.add(0, -1)
        await asyncio.sleep(0.1)
        assert scene.answers == {0: OK}  # on b0 and b1
        scene.bookies[0].crash()
        scene.bookies[0].start_after_a_loss([LEDGER])
        scene.bookies[1].crash()
        with pytest.raises(PersistenceError, match="too few bookies can tell"):
            await scene.recover()
        scene.bookies[1].start()
        assert (await scene.recover()).last_entry_id == 0

    play(script, 3, 3, 3, 2)


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        ("reads-do-not-fence", test_issue_2614_bookie_that_answered_a_recovery_accepts_no_add),
        ("recovers-in-front", test_issue_2615_recovery_starts_in_the_last_segment),
        ("fence-lost-in-a-crash", test_fence_survives_a_crash_of_its_bookie),
        ("a-lost-disk-says-no", test_lost_entries_of_a_bookie_do_not_shorten_the_ledger),
    ],
)
def test_each_script_fails_when_its_rule_is_disabled(rule: str, script: Callable[[], None]) -> None:
    with broken(rule), pytest.raises((AssertionError, pytest.fail.Exception)):
        script()
