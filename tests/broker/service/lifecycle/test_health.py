"""HealthProbe: fails while nothing can be stored, and succeeds again afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from bookkeeper.client.ledger_client import AddDone, EntryParts
from bookkeeper.ensembles.ledger_ids import LedgerIds
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.service.lifecycle import health
from broker.service.lifecycle.health import ENTRIES_PER_LEDGER, HealthProbe
from foundation.model.errors import ServiceNotReady
from protocol.ledger_metadata import ledger_key
from tests.fakes.ledgers import on_one_bookie

KEY = "/admin/health-probes/localhost%3A8080"


class FakeLedgers:
    def __init__(self) -> None:
        self.rc = 0
        self.silent = False
        self.added: list[tuple[int, int]] = []
        self.deleted: list[int] = []

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
        self.added += [(ledger_id, entry_id) for entry_id in entry_ids]
        if not self.silent:
            asyncio.get_running_loop().call_soon(done, self.rc, entry_ids[0])

    def delete(self, ledger_id: int, done: Callable[[int, int], None]) -> None:
        self.deleted.append(ledger_id)
        done(0, ledger_id)


class Bench:
    def __init__(self) -> None:
        self.now_ns = 10**12
        self.ledgers = FakeLedgers()
        self.metadata = MemoryMetadataStore()
        self.probe = self.new_probe()

    def new_probe(self, broker: str = "localhost:8080") -> HealthProbe:
        ground = SimpleNamespace(
            metadata=self.metadata,
            ledgers=on_one_bookie(self.metadata, self.ledgers),  # type: ignore[arg-type]
            ids=LedgerIds(self.metadata),
            now_ns=lambda: self.now_ns,
        )
        return HealthProbe(ground, broker)  # type: ignore[arg-type]


async def test_probes_within_a_second_share_one_entry() -> None:
    bench = Bench()
    await asyncio.gather(*(bench.probe.check() for _ in range(5)))
    await bench.probe.check()
    assert len(bench.ledgers.added) == 1
    bench.now_ns += health.FRESH_NS
    await bench.probe.check()
    ledger_id = bench.ledgers.added[0][0]
    assert bench.ledgers.added == [(ledger_id, 0), (ledger_id, 1)]


async def test_probe_fails_for_a_refused_entry_and_the_next_one_uses_a_new_ledger() -> None:
    bench = Bench()
    bench.ledgers.rc = 101
    with pytest.raises(ServiceNotReady, match="101"):
        await bench.probe.check()
    bench.ledgers.rc = 0
    await bench.probe.check()
    assert bench.ledgers.added[0][0] != bench.ledgers.added[1][0]


async def test_probe_fails_when_the_bookie_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "TIMEOUT_S", 0.01)
    bench = Bench()
    bench.ledgers.silent = True
    with pytest.raises(ServiceNotReady, match="within"):
        await bench.probe.check()


async def test_probe_ledgers_are_deleted() -> None:
    bench = Bench()
    for _ in range(ENTRIES_PER_LEDGER + 1):
        await bench.probe.check()
        bench.now_ns += health.FRESH_NS
    first, second = bench.ledgers.added[0][0], bench.ledgers.added[-1][0]
    assert bench.ledgers.deleted == [first]
    await bench.new_probe().check()
    assert bench.ledgers.deleted == [first, second]
    assert await bench.metadata.get(KEY) is not None


async def test_ledger_of_a_probe_that_was_given_up_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that stops between the ledger and its name left one ledger for each probe, without a name."""
    bench = Bench()
    await bench.probe.check()
    bench.now_ns += health.FRESH_NS
    real = bench.metadata.put

    async def hang(*_: object) -> int:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(health, "TIMEOUT_S", 0.01)
    monkeypatch.setattr(bench.metadata, "put", hang)
    for _ in range(4):
        with pytest.raises(ServiceNotReady, match="within"):
            await bench.probe.check()
    monkeypatch.setattr(bench.metadata, "put", real)
    monkeypatch.setattr(health, "TIMEOUT_S", 60.0)
    await bench.probe.check()
    key = await bench.metadata.get(KEY)
    assert key is not None
    ledgers = [number for number in range(100) if await bench.metadata.get(ledger_key(number)) is not None]
    assert ledgers == [int(key.value)]


async def test_probes_of_two_brokers_on_one_store_both_succeed() -> None:
    bench = Bench()
    probes = (bench.probe, bench.new_probe("other:8080"))
    for _ in range(2):
        for probe in probes:
            await probe.check()
        bench.now_ns += health.FRESH_NS
    assert len(bench.ledgers.added) == 4
    assert bench.ledgers.deleted == []


async def test_ledger_of_an_earlier_version_is_deleted_with_its_key() -> None:
    bench = Bench()
    old = await LedgerIds(bench.metadata).next()
    await bench.metadata.put("/admin/health", b"%d" % old)
    await bench.probe.check()
    assert bench.ledgers.deleted == [old]
    assert await bench.metadata.get("/admin/health") is None
