"""Reads from several bookies: the choice of the bookie, and the next one when it fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from bookkeeper.client.digest import digest_of
from bookkeeper.ensembles import ledgers as ledgers_module
from bookkeeper.ensembles.ledgers import Ledgers
from bookkeeper.metadata.metadata_store import Versioned
from broker.compose.ledger_settings import LedgerSettings
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError, NoSuchEntry, NoSuchLedger, PersistenceError
from protocol.ledger_metadata import DigestType, decode, encode, ledger_key
from tests.bookkeeper.ensembles.ensemble_fakes import IO_ERROR, LEDGER, NO_LEDGER, Cluster, turns

STICKY = LedgerSettings(3, 3, 2)
IN_TURN = LedgerSettings(3, 3, 2, sticky_reads=False)
BODIES = [b"body %d" % entry for entry in range(10)]


async def filled(settings: LedgerSettings, bookies: int = 3) -> Cluster:
    cluster = Cluster(bookies, settings)
    await cluster.begin()
    await cluster.fill(10)
    return cluster


def asked(cluster: Cluster) -> list[int]:
    return [len(bookie.asked) for bookie in cluster.bookies]


async def test_sticky_reads_of_a_ledger_go_to_one_bookie() -> None:
    cluster = await filled(STICKY)
    for entry in range(6):
        assert await cluster.read(entry, entry) == [BODIES[entry]]
    assert sorted(asked(cluster)) == [0, 0, 6]
    assert asked(cluster)[LEDGER % 3] == 6


async def test_first_entry_chooses_the_bookie_without_sticky_reads() -> None:
    cluster = await filled(IN_TURN)
    for entry in range(6):
        assert await cluster.read(entry, entry) == [BODIES[entry]]
    assert asked(cluster) == [2, 2, 2]


async def test_sticky_bookie_changes_after_a_failure() -> None:
    cluster = await filled(STICKY)
    first = LEDGER % 3
    cluster.bookies[first].rc = IO_ERROR
    assert await cluster.read(0, 9) == BODIES
    assert await cluster.read(0, 9) == BODIES
    assert asked(cluster)[first] == 1
    assert asked(cluster)[(first + 1) % 3] == 2


async def test_missing_or_damaged_entry_is_read_from_the_next_bookie() -> None:
    cluster = await filled(IN_TURN)
    cluster.bookies[0].forget(3)
    cluster.bookies[0].damage(6)
    assert await cluster.read(3, 3) == [BODIES[3]]
    assert await cluster.read(6, 9) == BODIES[6:]


async def test_entries_before_a_damaged_one_are_returned() -> None:
    cluster = await filled(STICKY)
    cluster.bookies[LEDGER % 3].damage(4)
    assert await cluster.read(0, 9) == BODIES[:4]
    assert await cluster.read(4, 9) == BODIES[4:]


async def test_read_reports_no_entry_only_when_every_bookie_does() -> None:
    cluster = await filled(STICKY)
    for bookie in cluster.bookies:
        bookie.forget(5)
    with pytest.raises(NoSuchEntry):
        await cluster.read(5, 5)
    cluster.bookies[1].rc = IO_ERROR
    with pytest.raises(PersistenceError, match="answered 101"):
        await cluster.read(5, 5)


async def test_read_reports_no_ledger_without_metadata() -> None:
    cluster = Cluster(3, STICKY)
    with pytest.raises(NoSuchLedger):
        await cluster.read(0, 0)


async def test_striped_entries_are_read_from_their_write_sets() -> None:
    cluster = await filled(LedgerSettings(3, 2, 2))
    assert await cluster.read(2, 9) == BODIES[2:]
    assert asked(cluster) == [3, 2, 3]
    assert await cluster.read(0, 9, bytes_max=len(BODIES[0]) * 3) == BODIES[:3]
    cluster.bookies[1].rc = IO_ERROR
    assert await cluster.read(0, 9) == BODIES
    cluster.bookies[2].rc = IO_ERROR
    assert await cluster.read(0, 9) == BODIES[:1]  # entry 1 is on the two that fail
    with pytest.raises(PersistenceError):
        await cluster.read(1, 9)


async def test_speculative_read_asks_the_next_bookie_after_silence() -> None:
    cluster = await filled(LedgerSettings(3, 3, 2, speculative_read_s=0.001))
    cluster.bookies[LEDGER % 3].silent = True
    assert await cluster.read(0, 9) == BODIES
    assert asked(cluster)[LEDGER % 3] == 1
    assert asked(cluster)[(LEDGER + 1) % 3] == 1


async def test_read_ends_at_the_end_of_a_segment() -> None:
    cluster = Cluster(4, LedgerSettings(3, 3, 3))
    await cluster.begin()
    await cluster.fill(4)
    cluster.bookies[0].rc = IO_ERROR
    cluster.add(*range(4, 10))
    await turns()
    cluster.bookies[0].rc = 0
    found: list[bytes] = []
    while len(found) < 10:
        found += await cluster.read(len(found), 9, cluster.restarted(STICKY))
    assert found == BODIES
    assert [bookie.asked for bookie in cluster.bookies] == [[(0, 4)], [], [], [(4, 6)]]


@pytest.mark.parametrize("kind", DigestType)
async def test_every_digest_type_detects_a_changed_byte(kind: DigestType) -> None:
    settings = LedgerSettings(2, 2, 2, digest_type=kind, password=b"secret")
    cluster = Cluster(2, settings)
    own = await cluster.begin()
    await cluster.fill(10)
    assert (own.metadata.digest_type, own.metadata.password) == (kind, b"secret")
    # The digest in the ledger's metadata is used, and not that of the present settings.
    other = cluster.restarted(LedgerSettings())
    assert await cluster.read(0, 9, other) == BODIES
    cluster.bookies[LEDGER % 2].damage(0)
    found = await cluster.read(0, 0, other)
    assert (found == BODIES[:1]) is (kind is not DigestType.DUMMY)
    closed = await cluster.restarted(LedgerSettings()).recover(LEDGER)
    assert closed is not None
    assert closed.last_entry_id == 9


HELLO = (7, 0, -1, 5, b"", b"hello")


def test_digests_equal_bookkeepers() -> None:
    assert b"".join(digest_of(DigestType.CRC32C).seal(*HELLO))[32:36].hex() == "9e3e717b"
    assert b"".join(digest_of(DigestType.CRC32).seal(*HELLO))[32:40].hex() == "00000000b9e72242"
    mac = digest_of(DigestType.HMAC, b"secret")
    assert b"".join(mac.seal(*HELLO))[32:52].hex() == "5a226c913843993855e07783f55a56663b0736e0"
    assert mac.master_key.hex() == "e793cbc379107648537183605cd361d3bb789a39"
    assert b"".join(digest_of(DigestType.DUMMY).seal(*HELLO))[32:] == b"hello"


# Metadata that is kept.


async def known(*, closed: bool = True) -> tuple[Cluster, Ledgers, list[str]]:
    """A closed ledger on b0, b1, b2 of five, a broker that has read it, and the keys it then reads in the store."""
    cluster = await filled(STICKY, bookies=5)
    if closed:
        assert await cluster.restarted(STICKY).recover(LEDGER) is not None
    other = cluster.restarted(STICKY)
    assert await cluster.read(0, 9, other) == BODIES
    asked_for: list[str] = []
    get = cluster.metadata.get

    async def counted(key: str) -> Versioned | None:
        asked_for.append(key)
        return await get(key)

    cluster.metadata.get = counted  # type: ignore[method-assign]
    return cluster, other, asked_for


async def move(cluster: Cluster) -> None:
    """Moves a closed ledger as a tool does when two of its bookies are dead: copies entries, then changes the metadata."""
    key = ledger_key(LEDGER)
    found = await cluster.metadata.get(key)
    assert found is not None
    metadata = decode(found.value)
    dead = (*cluster.bookies[:3],)
    for number in (3, 4):
        cluster.bookies[number]._ledgers = dead[0]._ledgers
    (segment,) = metadata.segments
    moved = segment._replace(members=(cluster.names[3], cluster.names[4], segment.members[2]))
    await cluster.metadata.put(key, encode(replace(metadata, segments=(moved,))), found.version)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "another's, open"])
@pytest.mark.parametrize("answer", [IO_ERROR, NO_LEDGER])
async def test_failed_read_uses_newer_metadata(answer: int, closed: bool) -> None:
    cluster, other, asked_for = await known(closed=closed)
    await move(cluster)
    asked_for.clear()
    for bookie in cluster.bookies[:3]:
        bookie.rc = answer
    for _ in range(3):
        assert await cluster.read(0, 9, other) == BODIES
    assert len(asked_for) == 1


async def test_failed_read_loads_metadata_once() -> None:
    cluster, other, asked_for = await known()
    for bookie in cluster.bookies:
        bookie.rc = IO_ERROR
    for number in range(1, 3):
        with pytest.raises(PersistenceError, match="answered 101"):
            await cluster.read(0, 9, other)
        assert len(asked_for) == number
        assert (
            sum(asked(cluster)) == 1 + 3 * number
        )  # one read that succeeded, and every member once for each read that failed
    for bookie in cluster.bookies:
        bookie.rc = 0
    assert await cluster.read(0, 9, other) == BODIES
    assert len(asked_for) == 2


async def test_metadata_of_closed_ledgers_is_kept_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, other, asked_for = await known()
    monkeypatch.setattr(ledgers_module, "KNOWN_MAX", 3)
    found = await cluster.metadata.get(ledger_key(LEDGER))
    assert found is not None
    for ledger_id in range(100, 110):
        await cluster.metadata.put(ledger_key(ledger_id), found.value, None)
        answered = asyncio.get_running_loop().create_future()
        other.read(ledger_id, 0, 0, 1000, lambda *_, answered=answered: answered.set_result(None))
        await answered
    assert len(other._kept) == 3
    asked_for.clear()
    assert await cluster.read(0, 9, other) == BODIES
    assert asked_for == [ledger_key(LEDGER)]


def start_read(ledgers: Ledgers, ledger_id: int) -> asyncio.Future[list[Entry]]:
    answered: asyncio.Future[list[Entry]] = asyncio.get_running_loop().create_future()

    def done(entries: list[Entry], error: BrokerError | None) -> None:
        if error is None:
            answered.set_result(entries)
        else:
            answered.set_exception(error)

    ledgers.read(ledger_id, 0, 9, 1000, done)
    return answered


async def test_open_ledgers_do_not_count_towards_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await filled(STICKY, bookies=5)
    assert await cluster.restarted(STICKY).recover(LEDGER) is not None
    broker = cluster.restarted(STICKY)
    monkeypatch.setattr(ledgers_module, "KNOWN_MAX", 3)
    own = [await broker.create(ledger_id, {}) for ledger_id in range(200, 204)]
    for _ in range(2):
        answered = start_read(broker, LEDGER)
        assert len(await asyncio.wait_for(answered, 60)) == 10
    for ledger in own:  # Each then counts as a closed ledger.
        await ledger.close(-1, 0)
    assert not broker._own
    assert list(broker._kept) == [201, 202, 203]


async def test_failing_reader_does_not_affect_other_readers(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(3, STICKY)

    def fails(*_: object) -> None:
        raise RuntimeError("on purpose")

    cluster.ledgers.read(LEDGER, 0, 9, 1000, fails)
    answered = start_read(cluster.ledgers, LEDGER)
    with pytest.raises(NoSuchLedger):
        await asyncio.wait_for(answered, 60)
    assert "on purpose" in caplog.text
