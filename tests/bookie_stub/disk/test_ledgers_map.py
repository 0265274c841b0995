"""One damaged bit of a log's header or ledgers map never makes its living entries garbage."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookie_stub.base.errors import CorruptEntry
from bookie_stub.disk.entry_log import HEADER_BYTES, read_header, read_ledgers_map
from bookie_stub.disk.ledger_storage import LedgerStorage
from bookie_stub.disk.rocks import no_pause
from bookie_stub.tools.log_completeness import ScannedLog
from bookie_stub.upkeep.log_usage import LogUsage
from tests.bookie_stub.conftest import Bench
from tests.bookie_stub.files import flip

LEDGER = 1
CHECKSUM = slice(20, 28)


@pytest.fixture
async def storage(bench: Bench) -> LedgerStorage:
    """With one finished log, which is one ledger's."""
    bench.open()
    await bench.add_all(LEDGER, range(50))
    bookie = bench.reopen()
    return bookie.state.storages.all[0]


@pytest.mark.parametrize("by", ["us", "BookKeeper"])
async def test_living_log_is_kept_when_any_bit_of_header_or_map_is_flipped(
    storage: LedgerStorage, by: str
) -> None:
    (log,) = storage.directory.glob("*.log")
    if by == "BookKeeper":
        without_checksum(log)
    header = read_header(log)
    assert header is not None
    whole = log.read_bytes()
    for place in (*range(CHECKSUM.stop), *range(header.map_offset, len(whole))):
        flip(log, place)
        collector = LogUsage(storage, no_pause)
        assert collector.remove_dead(lambda ledger_id: ledger_id == LEDGER) == 0, f"byte {place}"
        assert log.exists(), f"byte {place}"
        log.write_bytes(whole)
    assert LogUsage(storage, no_pause).remove_dead(lambda _: False) == len(whole)
    assert not log.exists()


async def test_read_ledgers_map_refuses_a_wrong_checksum(storage: LedgerStorage) -> None:
    (log,) = storage.directory.glob("*.log")
    assert read_ledgers_map(log) == {LEDGER: log.stat().st_size - HEADER_BYTES - 40}
    flip(log, log.stat().st_size - 9)
    with pytest.raises(CorruptEntry, match="do not fit their checksum"):
        read_ledgers_map(log)
    without_checksum(log)
    assert read_ledgers_map(log) == {LEDGER | 0x10: log.stat().st_size - HEADER_BYTES - 40}


def without_checksum(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[CHECKSUM] = bytes(8)
    log.write_bytes(content)


async def test_scanned_log_proves_nothing_when_a_header_without_a_map_is_damaged(bench: Bench) -> None:
    """A kill left the log without a map; damage to the header may mean that the log was cut too."""
    bench.open()
    await bench.add_all(LEDGER, range(50))
    await bench.checkpoint()
    (log,) = bench.directory.glob("ledgers/current/*.log")
    flip(log, CHECKSUM.start + 5)
    scanned = ScannedLog(log.parent, int(log.stem, 16))
    assert len(list(scanned)) == 50
    state = scanned.completeness(None)
    assert "damaged" in state.flaw
    assert not state.proven
