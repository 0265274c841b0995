"""CursorRecord: the two places where one cursor is stored: its node, and on a shared store a cursor ledger.

A store that belongs to one process has the node alone. A write of a shared one costs all of its users, so there a busy
cursor adds its positions to a ledger, as in Pulsar (ManagedCursorImpl):

    a new cursor, or new texts     the node, which names no ledger
    its first acknowledgement      a ledger with one entry; then the node, which names it
    each later one                 one entry
    the ledger is full or old      the same with the next one; the former is deleted
    a bookie refuses an add        the node, which names no ledger; the ledger is deleted
    the cursor is closed           the same; a cursor with many ranges leaves its position in the ledger, and ends it

The laws:

1. The last entry of the ledger that the node names is the position. The node names a ledger only after its first entry is
   confirmed: where that has none, Apache's brokers go back to the node's position and forget all ranges, and a node takes
   fewer ranges than an entry. A ledger without entries, which former releases could leave, keeps the node's in force.
2. The node names every ledger that may have a position: a crash can leave a next ledger or a former one that no node
   names, never lose one. Audits find such a ledger as an orphan, after a crash of Apache's broker too.
3. A broker that opens the cursor fences the ledger that the node names, and the former broker's next add is refused.
4. Where bundles have owners, each write of the node carries the check of the lease. The next owner has read the node and
   writes it by its version, so a write of the former owner in between would end the next one's writes. A deletion asks
   before it begins, and carries no check.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from zlib import crc32

from bookkeeper.ensembles.awaited_adds import AwaitedAdds
from bookkeeper.metadata.metadata_store import ABSENT, Check, Put
from bookkeeper.metadata.owned_key import OwnedKey
from broker.managed_ledger.ledger_context import LedgerContext
from broker.managed_ledger.managed_ledger_info import cursor_key
from broker.managed_ledger.records.pulsar_records import PREFIX
from foundation.model.errors import BadVersion, BrokerError, MetadataError, OwnerUncertain

log = logging.getLogger(__name__)

NO_LEDGER = -1
"""In the place of a ledger's id: the node itself has the position."""


class CursorRecord:
    """The node and the ledger of one durable cursor. One call at a time."""

    __slots__ = (
        "_adds",
        "_began_ns",
        "_begun",
        "_context",
        "_node",
        "_superfluous",
        "_texts",
        "ledger_id",
        "name",
    )

    def __init__(
        self, context: LedgerContext, name: str, version: int, ledger_id: int, texts: Mapping[str, str]
    ) -> None:
        """Arguments after `name` are those of the stored node: version or ABSENT, its ledger, its texts."""
        self.ledger_id = ledger_id
        """The ledger that the node names; NO_LEDGER = the node has the position."""
        self._context = context
        self.name = name
        """The cursor's name."""
        self._node = OwnedKey(context.environment.metadata, version)
        self._texts = texts
        self._adds: AwaitedAdds | None = None
        """None while no ledger is open; one that another broker began is never written on.

        Between `begin` and the success of `put` its ledger is not `ledger_id` yet.
        """
        self._began_ns = 0
        self._begun = NO_LEDGER
        """A ledger that no write of the node was asked to name yet."""
        self._superfluous: tuple[int, ...] = ()
        """Ledgers that the node does not name once it is written again, unless that names one of them."""

    @property
    def version(self) -> int:
        """The version of the node, or ABSENT."""
        return self._node.version

    @property
    def last_entry(self) -> int:
        """The last entry that was added to the ledger that the node names; -1 without one."""
        return -1 if self._adds is None or not self.is_named else self._adds.count - 1

    @property
    def has_superfluous(self) -> bool:
        """True while there are ledgers that the node names no more."""
        return bool(self._superfluous)

    @property
    def key(self) -> str:
        """The key of the node."""
        return cursor_key(self._context.name, self.name)

    def needs_ledger(self) -> bool:
        """Returns True when the next position needs a new ledger: none is open, or that is full or old."""
        settings, now_ns = self._context.settings, self._context.environment.now_ns()
        return (
            self._adds is None
            or self._adds.count >= settings.cursor_entries_max
            or now_ns >= self._began_ns + settings.cursor_rollover_ns
        )

    @property
    def open_id(self) -> int:
        """The open ledger; NO_LEDGER without one."""
        return NO_LEDGER if self._adds is None else self._adds.ledger_id

    @property
    def is_named(self) -> bool:
        """False while `put` has not named the open ledger: its entries count for nothing."""
        return self.open_id in (NO_LEDGER, self.ledger_id)

    def needs_texts(self, texts: Mapping[str, str]) -> bool:
        """Returns True when the node has other texts of a subscription; those of Magnetar are needed in entries alone."""
        return texts is not self._texts and _of_others(texts) != _of_others(self._texts)

    async def put(self, value: bytes, ledger_id: int, texts: Mapping[str, str]) -> None:
        """Writes the node; the value names `ledger_id` and has the texts. Raises MetadataError."""
        self.check_lease()  # Raises before the value counts as one that was perhaps stored.
        self._set_begun(NO_LEDGER)
        try:
            await self._node.put_with(self.key, value, self._put)
        except BadVersion:
            if ledger_id in self._superfluous:  # Another broker has the node, which never named this ledger.
                await self._delete(ledger_id)
            raise
        self._written(ledger_id, texts)

    async def next_id(self) -> int:
        """Takes an id for the ledger that begins next. Raises MetadataError, without a lease before it is taken."""
        self.check_lease()
        return await self._context.environment.ids.next()

    async def begin(self, ledger_id: int, entry: bytes) -> None:
        """Makes a ledger with one entry. It counts once `put` has named it.

        Raises MetadataError, and PersistenceError when the entry is refused.
        """
        self.check_lease()  # A ledger that is made without the lease would be an orphan.
        environment = self._context.environment
        self._set_begun(ledger_id)  # Perhaps made although `create` fails.
        try:
            own = await environment.ledgers.create(ledger_id, self._custom())
        except BadVersion as error:
            # A ledger that is there already is not ours: nothing here deletes it, and the next try takes another id.
            self._begun = NO_LEDGER
            raise MetadataError(
                f"{self.key}: the ledger {ledger_id} of its next positions exists already"
            ) from error
        self._adds = AwaitedAdds(own, environment.ledgers, environment.turn, environment.now_ns)
        # Cursors that begin together, as after a start, do not need their next ledgers together.
        spread_ns = self._context.settings.cursor_rollover_ns // 2 + 1
        self._began_ns = environment.now_ns() - crc32(self.key.encode()) % spread_ns
        await self.add_and_wait(entry)

    def _set_begun(self, ledger_id: int) -> None:
        if self._begun != NO_LEDGER:
            self._superfluous += (self._begun,)
        self._begun = ledger_id

    async def drop_begun(self) -> None:
        """Deletes the ledger that no write of the node was asked to name: the cursor is abandoned."""
        ledger_id, self._begun = self._begun, NO_LEDGER
        if ledger_id != NO_LEDGER:
            self._adds = None
            await self._delete(ledger_id)

    def _custom(self) -> dict[str, bytes]:
        return {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": self._context.name.encode(),
            "pulsar/cursor": self.name.encode(),
        }

    async def _put(self, node: Put) -> tuple[None, int]:
        metadata = self._context.environment.metadata
        conditions = self._conditions()
        if not conditions:
            return None, await metadata.put(*node)
        try:
            version, _ = await metadata.put_all((node, *conditions))
        except BadVersion:
            await self._check_lease(node)
            raise
        return None, version

    def check_lease(self) -> None:
        """Raises MetadataError where this broker knows that it has no lease of the topic, or is not sure of it."""
        self._conditions()

    def _conditions(self) -> tuple[Check, ...]:
        lease = self._context.store.lease
        return () if lease is None else (lease(),)

    async def _check_lease(self, node: Put) -> None:
        """Raises OwnerUncertain if a write was refused although the node has its version: the lease has gone.

        It may come back, and then the position is stored.
        """
        found = await self._context.environment.metadata.get(self.key)
        if (ABSENT if found is None else found.version) == node.expected:
            raise OwnerUncertain(f"{self.key} is not written: this broker has no lease of its topic")

    def _written(self, ledger_id: int, texts: Mapping[str, str]) -> None:
        former = (*self._superfluous, self.ledger_id)
        self._superfluous = tuple(one for one in former if one not in (NO_LEDGER, ledger_id))
        self.ledger_id, self._texts = ledger_id, texts
        if self._adds is not None and self._adds.ledger_id != ledger_id:
            self._adds = None

    def add(self, entry: bytes, done: Callable[[BrokerError | None], None]) -> None:
        """Adds a position to the open ledger; `done` gets the error of a refused one, which ends the ledger."""
        adds = self._adds
        assert adds is not None
        adds.add(entry, partial(self._add_ended, adds, done))

    def _add_ended(
        self, adds: AwaitedAdds, done: Callable[[BrokerError | None], None], error: BrokerError | None
    ) -> None:
        if error is not None and self._adds is adds:
            self._adds = None
        done(error)

    async def add_and_wait(self, entry: bytes) -> None:
        """Adds a position to the open ledger. Raises BrokerError; the ledger then takes no further one."""
        adds = self._adds
        assert adds is not None
        adds.add(entry)
        try:
            await adds.confirmed()
        except BrokerError:
            self._adds = None
            raise

    async def settle(self) -> None:
        """Returns when the outcome of each add is known."""
        if self._adds is not None:
            with contextlib.suppress(BrokerError):
                await self._adds.confirmed()

    async def end_ledger(self) -> None:
        """Ends the open ledger, which keeps the position, so that the next open need not recover it."""
        if self._adds is not None:
            # A recovery ends it otherwise.
            with contextlib.suppress(BrokerError):
                await self._adds.close()
            self._adds = None

    async def delete_superfluous(self) -> None:
        """Deletes the ledgers that the node names no more. After an error the next call tries again."""
        for ledger_id in self._superfluous:
            # The open one has begun meanwhile, and is about to be named.
            if self._adds is None or self._adds.ledger_id != ledger_id:
                await self._delete(ledger_id)

    async def _delete(self, ledger_id: int) -> None:
        try:
            await self._context.environment.ledgers.delete(ledger_id)
        except BrokerError as error:
            log.info("%s: its superfluous ledger %d is deleted later: %s", self.key, ledger_id, error)
        else:
            self._superfluous = tuple(one for one in self._superfluous if one != ledger_id)

    async def delete(self) -> None:
        """Deletes node and ledgers. Raises MetadataError."""
        self.check_lease()
        # The node first: a node whose ledger is gone would bring the cursor back at an old position.
        await self._context.environment.metadata.delete(self.key)
        self._written(NO_LEDGER, self._texts)
        await self.drop_begun()
        await self.delete_superfluous()


def _of_others(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if not name.startswith(PREFIX)}
