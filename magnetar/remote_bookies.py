"""A broker's bookies over TCP: a connection to each that `bookieAddress` names, and the wait until enough answer.

Bookies may start later than the broker, as in a compose file; the clients say what is wrong and try on.
"""

from __future__ import annotations

import asyncio

from broker import clock
from broker.ledger_client.bookies import Bookies, BookieSet, OneBookie
from broker.ledger_client.bookkeeper import BookKeeperLedgerClient
from broker.room_settings import quarantine_settings
from broker.turn import Turn
from protocol.frame import FRAME_PADDING_BYTES
from settings.settings import Settings

RETRY_S = 0.2


async def connect_to_bookies(settings: Settings, turn: Turn) -> Bookies:
    """Returns when as many answer as an entry is written to. A cancelled call leaves no connection behind."""

    def connect(address: str) -> BookKeeperLedgerClient:
        host, _, port = address.rpartition(":")
        return BookKeeperLedgerClient(
            host,
            int(port),
            turn=turn,
            frame_bytes_max=settings.int("maxMessageSize") + FRAME_PADDING_BYTES,
            timeout_s=settings.int("bookkeeperClientTimeoutInSeconds"),
        )

    addresses = settings.list("bookieAddress")
    if len(addresses) == 1:
        client = connect(addresses[0])
        bookies: Bookies = OneBookie(addresses[0], client)
        enough = _wait_for_one(client)
    else:
        several = BookieSet(
            addresses,
            connect,
            now_ns=clock.monotonic_ns,
            quarantine=quarantine_settings(settings),
        )
        bookies = several
        enough = _wait_for(several, settings.int("managedLedgerDefaultWriteQuorum"))
    try:
        await enough
    except BaseException:
        await bookies.close()
        raise
    return bookies


async def _wait_for_one(client: BookKeeperLedgerClient) -> None:
    while True:
        try:
            await client.connected()
        except ConnectionError:
            await asyncio.sleep(RETRY_S)
        else:
            return


async def _wait_for(bookies: BookieSet, count: int) -> None:
    while len(bookies.reachable()) < count:  # noqa: ASYNC110 - connections come and go
        await asyncio.sleep(RETRY_S / 10)
