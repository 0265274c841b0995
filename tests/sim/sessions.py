"""One history of several processes on a store with sessions; then calm, and the judgement.

Sessions expire, processes are cut off, followers lose their leader and answer reads of before, notices are late or lost with
the connection, answers are lost. The statements:

* No change that was confirmed is lost, and none is made twice.
* A process never sees an older document after a newer one.
* Rights that count as confirmed are never older than their bound.
* Without faults a change acts at every process within a second; after all faults every process has what the leader has.
* No two starts get one number.
* A key of one process is never taken for another's because an answer was lost.
* Deletions remove what was decided and nothing else, and another process finishes those of a lost session
  (`session_deletions.py`).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from dataclasses import dataclass, fields

from bookkeeper.metadata import start_count
from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import ABSENT
from bookkeeper.metadata.owned_key import OwnedKey
from broker.compose.confirmed_rights import BOUND_S, CHECK_S, ROUND_S, ConfirmedRights
from foundation.model.errors import BadVersion, MetadataError
from tests.sim.followers import Cluster, FollowerStore, Leader
from tests.sim.loop import SimLoop, run
from tests.sim.metadata import Broken
from tests.sim.session_deletions import Deleting, DeletionWitness

LIFE_S = 240.0
"""Simulated seconds with faults."""
CALM_S = 15.0
"""Simulated seconds after which everything is as the leader has it; less than a round of rights."""
SESSION_S = 30.0
ACTS_S = 1.0
PROCESSES = 3
RIGHTS, OTHERS = "/rights", "/others"
NAMES = ("a", "b", "c", "d")

Document = dict[str, int]
"""`revision`, and a member for each change that was made."""


@dataclass
class SessionCounts:
    """Operations of one history."""

    changes: int = 0
    unanswered: int = 0
    starts: int = 0
    positions: int = 0
    cuts: int = 0
    expired: int = 0
    frozen: int = 0
    without_rights: int = 0
    """Seconds of a process."""
    made: int = 0
    deleted: int = 0
    resumed: int = 0

    def add(self, other: SessionCounts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def text(self) -> str:
        return ", ".join(
            f"{getattr(self, field.name)} {field.name.replace('_', ' ')}" for field in fields(self)
        )


def simulate_sessions(seed: int, trace: list[str] | None = None) -> SessionCounts:
    """Raises Broken, or Stuck, where a statement does not hold. `trace` gets what happened."""
    loop = SimLoop()
    return run(SessionsHistory(seed, loop, [] if trace is None else trace).run(), loop)


class Memory(dict[str, Document]):
    """The documents of a process; remembers the first one that was older than one before it."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: dict[str, int] = {}
        self.went_back = ""

    def __setitem__(self, name: str, document: Document) -> None:
        revision = document["revision"]
        newest = self._newest[name] = max(self._newest.get(name, 0), revision)
        if revision < newest and not self.went_back:
            self.went_back = f"revision {revision} of {name} after {newest}"
        super().__setitem__(name, document)


class Process:
    """One broker's part of the store."""

    def __init__(self, history: SessionsHistory, number: int) -> None:
        self.name = f"process-{number}"
        self.store = FollowerStore(history.cluster)
        self.rights = Documents(self.store, RIGHTS, _decode, _encode)
        self.others = Documents(self.store, OTHERS, _decode, _encode, levels=2)
        self.confirmed = ConfirmedRights(
            (self.rights.read_again,),
            lambda: None,
            now_ns=history.loop.now_ns,
            spawn=lambda work, name: history.spawn(work, f"{self.name} {name}"),
        )
        self.cursor = OwnedKey(self.store, ABSENT)
        self.memory = Memory()
        self.rights.values = self.memory
        self.deleting = Deleting(self.store, history.deletion_rng, history.generations)


class SessionsHistory:
    """The cluster, its faults and the judgement."""

    def __init__(self, seed: int, loop: SimLoop, trace: list[str]) -> None:
        self.loop, self.trace = loop, trace
        self.rng = rng = random.Random(seed ^ 0x5E55)
        self.cluster = Cluster(rng, loop, lag_s=rng.choice((0.01, 0.2)), notice_s=rng.choice((0.0, 0.3)))
        # One of its own, so that seeds keep their other operations.
        self.deletion_rng = random.Random(seed ^ 0xDE1E7E)
        self.generations: list[int] = []
        self._witness = DeletionWitness()
        self.processes = [Process(self, number) for number in range(PROCESSES)]
        self.counts = SessionCounts()
        self._confirmed: set[tuple[str, str]] = set()
        """Names and members of changes that were answered."""
        self._members = 0
        self._indexed = 0
        self._stored_s: dict[tuple[str, int], float] = {}
        """When each revision was stored first, of the first `_indexed` changes."""
        self._starts: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def note(self, text: str) -> None:
        self.trace.append(f"{self.loop.time():9.4f} {text}")

    def spawn(self, work: Coroutine[object, None, None], name: str) -> None:
        self._tasks.append(self.loop.create_task(work, name=name))

    async def run(self) -> SessionCounts:
        for process in self.processes:
            await process.rights.open()
            await process.others.open()
        lost = self.rng.choice((0.0, 0.005, 0.03))
        self.cluster.lost = lost
        work = []
        for process in self.processes:
            work += [
                self._change(process),
                self._move(process),
                self._start(process),
                self._confirm(process),
                self._delete(process),
            ]
        running = [self.loop.create_task(one) for one in (*work, self._fault(), self._observe())]
        await asyncio.sleep(LIFE_S)
        self._raise_first(running)
        for task in running[:-1]:
            task.cancel()
        self.cluster.lost = 0.0
        await asyncio.sleep(CALM_S)
        self._raise_first([*running[-1:], *self._tasks])
        self._check_equal("after all faults")
        self._check_kept()
        await self._check_deleted()
        await self._check_act()
        running[-1].cancel()
        return self.counts

    def _raise_first(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # Work

    async def _change(self, process: Process) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(0.2, 6.0))
            name = self.rng.choice(NAMES)
            if self.rng.random() < 0.4:
                await self._change_other(process, f"{self.rng.choice('xy')}/{name}")
            else:
                await self._add(process, name)

    async def _add(self, process: Process, name: str) -> None:
        self._members += 1
        member = f"m{self._members}"

        def changed(before: Document | None) -> Document:
            document = before or {"revision": 0}
            return {**document, member: 1, "revision": document["revision"] + 1}

        try:
            await process.rights.change(name, changed)
        except MetadataError as error:
            self.note(f"{process.name}: {name} {member}: {error}")
            self.counts.unanswered += 1
            return
        self.note(f"{process.name}: {name} has {member}")
        self.counts.changes += 1
        self._confirmed.add((name, member))

    async def _change_other(self, process: Process, name: str) -> None:
        """Makes or removes a document that no round reads again."""
        self._members += 1
        value = None if self.rng.random() < 0.3 else {"revision": self._members}
        try:
            await process.others.change(name, lambda _: value)
        except MetadataError:
            self.counts.unanswered += 1
        else:
            self.counts.changes += 1

    async def _move(self, process: Process) -> None:
        """Writes positions of a cursor that this process alone has."""
        position, key = 0, f"/cursors/{process.name}"
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 3.0))
            position += 1
            try:
                await process.cursor.put(key, b"%d" % position)
            except BadVersion as error:
                raise Broken(f"{key} was taken for another process's: {error}") from error
            except MetadataError:
                self.counts.unanswered += 1
                continue
            self.counts.positions += 1
            found = await self._leader.get(key)
            if found is None or found.value != b"%d" % position:
                raise Broken(f"{key} is {found}, confirmed was {position}")

    async def _start(self, process: Process) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(1.0, 20.0))
            try:
                number = await start_count.count_start(process.store)
            except MetadataError:
                self.counts.unanswered += 1
                continue
            self.counts.starts += 1
            if number in self._starts:
                raise Broken(f"two starts have number {number}")
            self._starts.add(number)

    async def _delete(self, process: Process) -> None:
        while True:
            await asyncio.sleep(self.deletion_rng.uniform(0.1, 6.0))
            left_s = LIFE_S - self.loop.time()
            if self.deletion_rng.random() < 0.05 and left_s > SESSION_S:
                # In the middle of the deletion, and others may finish it meanwhile.
                self.counts.cuts += 1
                delay_s, seconds = self.deletion_rng.uniform(0.0, 0.2), self.deletion_rng.uniform(0.0, left_s)
                self.loop.call_later(delay_s, process.store.cut, min(seconds, 2 * SESSION_S), SESSION_S)
            if outcome := await process.deleting.act():
                self.note(f"{process.name}: {outcome}")
                setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)

    async def _check_deleted(self) -> None:
        """The next look of each process ends everything that was decided."""
        for process in self.processes:
            await process.deleting.deletions.resume()
        self._judge_log()
        self._witness.check_finished(self._leader._values)

    async def _confirm(self, process: Process) -> None:
        due_s = self.loop.time()
        while True:
            await asyncio.sleep(CHECK_S)
            process.confirmed.check()
            self.counts.without_rights += not process.confirmed.is_confirmed()
            if self.loop.time() - due_s >= ROUND_S:
                due_s = self.loop.time()
                process.confirmed.begin_round()
                if self.rng.random() < 0.1 and self.loop.time() + BOUND_S < LIFE_S:
                    # In the middle of the round: some documents are read before the cut, and others after it.
                    self.counts.cuts += 1
                    delay_s, seconds = (
                        self.rng.uniform(0.0, 0.1),
                        self.rng.uniform(BOUND_S, LIFE_S - self.loop.time()),
                    )
                    self.note(f"{process.name}: cut {seconds} in a round")
                    self.loop.call_later(delay_s, process.store.cut, seconds, SESSION_S)

    # Faults

    async def _fault(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(1.0, 40.0))
            process = self.rng.choice(self.processes)
            # Over by the end, or the judgement would be of a process that is still cut off.
            seconds = min(self.rng.choice((0.5, 5.0, 40.0, 100.0)), LIFE_S - self.loop.time())
            kind = self.rng.choice(("cut", "freeze", "expire"))
            self.note(f"{process.name}: {kind} {seconds}")
            if kind == "cut":
                self.counts.cuts += 1
                process.store.cut(seconds, SESSION_S)
            elif kind == "freeze":
                self.counts.frozen += 1
                process.store.freeze(seconds)
            else:
                self.counts.expired += 1
                process.store.expire()

    # Judgement

    @property
    def _leader(self) -> Leader:
        assert self.cluster.first is not None
        return self.cluster.first

    async def _observe(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for process in self.processes:
                if process.memory.went_back:
                    raise Broken(f"{process.name} has {process.memory.went_back}")
                for name in NAMES:
                    self._check_document(process, name)
            self._judge_log()

    def _check_document(self, process: Process, name: str) -> None:
        revision = process.memory.get(name, {"revision": 0})["revision"]
        if process.confirmed.is_confirmed():
            superseded_s = self._superseded_s(name, revision)
            # The guard looks at whole turns of the loop.
            if superseded_s is not None and self.loop.time() - superseded_s > BOUND_S + 0.001:
                age_s = self.loop.time() - superseded_s
                raise Broken(f"{process.name} uses revision {revision} of {name}, replaced {age_s:.1f} s ago")

    def _superseded_s(self, name: str, revision: int) -> float | None:
        """Returns when the next revision was stored."""
        self._judge_log()
        return self._stored_s.get((name, revision + 1))

    def _judge_log(self) -> None:
        for number in range(self._indexed, len(self.cluster.log)):
            key, value = self.cluster.log[number]
            self._witness.changed(key, value)
            if key.startswith(f"{RIGHTS}/") and value is not None:
                place = key[len(RIGHTS) + 1 :], _decode(value.value)["revision"]
                self._stored_s.setdefault(place, self.cluster.changed_s[number])
        self._indexed = len(self.cluster.log)

    def _check_equal(self, when: str) -> None:
        for root in (RIGHTS, OTHERS):
            stored = {
                key[len(root) + 1 :]: _decode(value.value)
                for key, value in self._leader._values.items()
                if key.startswith(f"{root}/")
            }
            for process in self.processes:
                has = process.rights.values if root == RIGHTS else process.others.values
                if has != stored:
                    raise Broken(f"{when} {process.name} has {has} of {root}, stored is {stored}")

    def _check_kept(self) -> None:
        for name, member in self._confirmed:
            if member not in _decode(self._leader._values[f"{RIGHTS}/{name}"].value):
                raise Broken(f"the confirmed change {member} of {name} is lost")

    async def _check_act(self) -> None:
        for process in self.processes:
            await self._add(process, NAMES[0])
            await process.others.change("x/new", lambda _, name=process.name: {name: 1})  # type: ignore[misc]
            await asyncio.sleep(ACTS_S)
            self._check_equal("a second after a change")


def _decode(data: bytes) -> Document:
    found: Document = json.loads(data)
    return found


def _encode(document: Document, _before: Document | None) -> bytes:
    return json.dumps(document).encode()
