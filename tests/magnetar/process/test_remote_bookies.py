"""The connections of a broker to its bookies at its start."""

from __future__ import annotations

import asyncio

import pytest

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from broker.config import load_broker_settings
from foundation.loop import clock
from foundation.loop.turn import Turn
from foundation.settings.errors import SettingsError
from magnetar.process import remote_bookies
from tests.support.ports import free_port


async def test_start_names_the_bookies_that_it_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_bookies, "_SAY_AFTER_S", 0)
    addresses = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    settings = load_broker_settings(None, environ={}, overrides=[f"bookieAddress={addresses}"])
    turn = Turn(asyncio.get_running_loop().call_soon, clock.monotonic_ns)
    start = asyncio.create_task(remote_bookies.connect_to_bookies(settings, turn, MemoryMetadataStore()))

    def lines() -> list[str]:
        return [one.getMessage() for one in caplog.records if "the start waits" in one.getMessage()]

    async with asyncio.timeout(60):
        while not lines():  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    names = addresses.replace(",", ", ")
    assert lines() == [
        "the start waits for 2 bookies (managedLedgerDefaultWriteQuorum) out of bookieAddress: 0 of"
        f" {names} connected; start them, or set managedLedgerDefaultEnsembleSize to a smaller number"
    ]


async def test_sizes_of_reads_reach_the_connections_and_bad_ones_end_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[object] = []

    class Stopped(Exception):
        """Ends the start at the first connection."""

    def connect(*_: object, receive_sizes: object, **__: object) -> None:
        given.append(receive_sizes)
        raise Stopped

    monkeypatch.setattr(remote_bookies, "BookKeeperLedgerClient", connect)

    async def start(*sizes: str) -> None:
        overrides = ["bookieAddress=127.0.0.1:1", *(f"byteBufAllocatorSize{one}" for one in sizes)]
        settings = load_broker_settings(None, environ={}, overrides=overrides)
        turn = Turn(asyncio.get_running_loop().call_soon, clock.monotonic_ns)
        await remote_bookies.connect_to_bookies(settings, turn, MemoryMetadataStore())

    for sizes in ((), ("Max=65536",)):
        with pytest.raises(Stopped):
            await start(*sizes)
    assert given == [None, (65536, 65536, 65536)]
    with pytest.raises(
        SettingsError, match=r"byteBufAllocatorSizeMin=2048: .* raise the last or lower the first"
    ):
        await start("Min=2048", "Max=1024")
