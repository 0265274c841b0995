"""HealthProbe: checks that the broker can store, by storing something.

A probe writes a key to the metadata store and an entry to a ledger of its own, and waits until both are durable. A publish
needs the same two. Requests within a second share one probe, so a monitor cannot load the bookie. The ledger is replaced
after some hundred entries, after a failure, and at the next start of the broker.

The law: a ledger begins in one write with the key that names it, and each write compares the key's version. So no ledger
is left without a name, however late the write of a probe that was given up arrives.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from bookkeeper.client.ledger_client import EntryAdds
from bookkeeper.metadata.metadata_store import ABSENT, Put
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from foundation.model.errors import BrokerError, ServiceNotReady

ROOT: Final = "/admin/health-probes"
"""Below it a key for each broker holds the id of the probe's ledger, so that the next start can delete it."""
_OLD_KEY: Final = "/admin/health"
"""The key in stores of earlier versions, in which the probes of two brokers made each other fail."""
TIMEOUT_S: Final = 4.0
"""A probe that takes longer has failed."""
FRESH_NS: Final = 1_000_000_000
"""Time during which a success is reported again without a probe."""
ENTRIES_PER_LEDGER: Final = 500
"""Probes per ledger; then it is deleted and its space can be collected."""
_BODY: Final = b"healthy?"


class HealthProbe:
    """Runs one probe at a time; a success counts for a second."""

    def __init__(self, environment: ManagedLedgerEnvironment, broker: str) -> None:
        """`broker` names this one among those that share the metadata store, and is the same after a restart."""
        self._environment = environment
        self._key = f"{ROOT}/{quote(broker, safe='')}"
        self._ledger_id = -1
        self._adds: EntryAdds | None = None
        self._next_entry = 0
        self._version = ABSENT
        """Version of the key, while it names `_ledger_id`."""
        self._probing: asyncio.Task[None] | None = None
        self._healthy_until_ns = 0

    async def check(self) -> None:
        """Returns after a successful probe, at most a second old. ServiceNotReady names the failure."""
        if self._environment.now_ns() < self._healthy_until_ns:
            return
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe(), name="health probe")
            self._probing.add_done_callback(self._probed)
        # Shielded: a monitor that gives up must not end the probe that others wait for.
        await asyncio.shield(self._probing)

    def _probed(self, task: asyncio.Task[None]) -> None:
        self._probing = None
        if not task.cancelled() and task.exception() is None:
            self._healthy_until_ns = self._environment.now_ns() + FRESH_NS

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                if self._ledger_id < 0 or self._next_entry >= ENTRIES_PER_LEDGER:
                    await self._renew_ledger()
                # With each probe, so that a metadata store that cannot write is noticed too.
                value = b"%d" % self._ledger_id
                self._version = await self._environment.metadata.put(self._key, value, self._version)
                await self._add_entry()
        except TimeoutError:
            self._ledger_id = -1
            # An add may still be under way: the next probe uses a new ledger.
            raise ServiceNotReady(f"nothing could be stored within {TIMEOUT_S:g} s") from None
        except BrokerError as error:
            self._ledger_id = -1
            raise ServiceNotReady(f"nothing can be stored: {error}") from error

    async def _renew_ledger(self) -> None:
        found = await self._environment.metadata.get(self._key)
        if found is not None:
            await self._environment.ledgers.delete(int(found.value))
        else:
            await self._remove_old()
        ledger_id = await self._environment.ids.next()
        named = Put(self._key, b"%d" % ledger_id, ABSENT if found is None else found.version)
        ledger, (self._version,) = await self._environment.ledgers.create_with(
            ledger_id, {"application": b"pulsar", "component": b"health"}, (named,)
        )
        self._adds = self._environment.ledgers.writer(ledger)
        self._ledger_id = ledger_id
        self._next_entry = 0

    async def _remove_old(self) -> None:
        old = await self._environment.metadata.get(_OLD_KEY)
        if old is not None:
            await self._environment.ledgers.delete(int(old.value))
            await self._environment.metadata.delete(_OLD_KEY)

    async def _add_entry(self) -> None:
        entry_id = self._next_entry
        self._next_entry += 1
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(rc: int, _: int) -> None:
            if not confirmed.done():
                confirmed.set_result(rc)

        length = self._next_entry * len(_BODY)
        digest = self._environment.ledgers.digest
        parts = digest.seal(self._ledger_id, entry_id, entry_id - 1, length, b"", _BODY)
        assert self._adds is not None
        self._adds.add(
            self._ledger_id, (entry_id,), [parts], master_key=digest.master_key, recovery=False, done=done
        )
        rc = await confirmed
        if rc != 0:
            raise ServiceNotReady(f"the bookie answered {rc}")
