"""Members: the brokers of the cluster, this one among them, and which of them leads.

Each broker keeps a node that ends with its session, and one of them the node of the leader too. Every broker follows both by
watches: a watch tells that something may have changed, and the newest value is what counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from bookkeeper.metadata.metadata_store import Ephemeral, MetadataStore, Stop
from broker.cluster.records import BROKERS, LEADER, Member, decode_leader, decode_member
from broker.service.transactions.coordinator import Spawn
from foundation.model.errors import BadVersion, BrokerError, OwnerUncertain

log = logging.getLogger("magnetar")

RETRY_S: Final = 1.0
"""Seconds after a failed read until the next one."""


class Members:
    """Opened with `open`; `members` and `leader` follow the store from then on."""

    def __init__(self, store: MetadataStore, spawn: Spawn) -> None:
        self.members: Mapping[str, Member] = {}
        """The brokers that are there, by name, as read last."""
        self.leader: str | None = None
        """The name of the leading broker; None while nobody leads."""
        self._store = store
        self._spawn = spawn
        self._name = ""
        self._report: bytes = b""
        self._leader_value: bytes = b""
        self._stops: list[Stop] = []
        self._decoded: dict[str, tuple[bytes, Member]] = {}
        """By name: the registration that was read last, and what it says."""
        self._due = False
        self._reading = False
        self._is_candidate = False
        self._has_lead = False
        """True once this broker has made the node of the leader in this session."""
        self._is_current = asyncio.Event()
        """Cleared from the news of a change until it has been read, or could not be."""
        self._is_current.set()
        self._fault = ""
        """The reason for which the last read failed; empty where it did not."""
        # A read that began earlier and ended later would bring back what has changed since.
        self._one_read = asyncio.Lock()

    async def open(self, name: str, report: bytes, leader: bytes) -> None:
        """Registers this broker, and leads if nobody does. `report` and `leader` are the values of its nodes.

        Raises MetadataError.
        """
        self._name, self._report, self._leader_value = name, report, leader
        self._is_candidate = True
        await self.register()
        self._stops.append(await self._store.watch_children(BROKERS, self.changed))
        self._stops.append(await self._store.watch(LEADER, self.changed))
        await self._read()

    async def register(self) -> None:
        """Makes the node of this broker anew; that of an earlier session of it, which may still be there, goes."""
        await put_own(self._store, f"{BROKERS}/{self._name}", self._report)

    async def report(self, report: bytes) -> None:
        """Writes the load report. Raises MetadataError."""
        if self._is_candidate:
            node = await self._store.get(f"{BROKERS}/{self._name}")
            # Without a version a write would make a node that no end of a session removes.
            if node is not None:
                await self._store.put(f"{BROKERS}/{self._name}", report, node.version)
        # Only now: with a report that is too long for a node this broker could not register in its next session.
        self._report = report

    async def leave(self) -> None:
        """Removes the registration, so that nobody chooses this broker any more. Raises MetadataError."""
        self._is_candidate = False
        await self._store.delete(f"{BROKERS}/{self._name}")

    async def close(self) -> None:
        """Gives up the lead, and follows no more. Raises MetadataError."""
        for stop in self._stops:
            stop()
        # Not by what was read last: another broker may lead by now.
        if self._has_lead:
            self._has_lead = False
            await self._store.delete(LEADER)

    def end_session(self) -> None:
        """Notes that the nodes of this broker have gone with its session."""
        self._has_lead = False

    def changed(self) -> None:
        """Reads everything again, once at a time."""
        self._due = True
        self._is_current.clear()
        if not self._reading:
            self._reading = True
            self._spawn(self._follow(), "members of the cluster")

    async def _follow(self) -> None:
        try:
            while self._due:
                self._due = False
                try:
                    await self._read()
                    self._fault = ""
                except (BrokerError, ValueError) as error:
                    self._due = True
                    self._note_fault(str(error))
                    # Those who wait are refused: a damaged node may stay until a person removes it.
                    self._is_current.set()
                    await asyncio.sleep(RETRY_S)
        finally:
            self._reading = False
            self._is_current.set()

    def _note_fault(self, fault: str) -> None:
        # Once: a damaged node is read every second.
        if fault != self._fault:
            log.warning("! the brokers of the cluster cannot be read, trying again: %s", fault)
        self._fault = fault

    async def current(self) -> None:
        """Returns once every change that the store has told of is in `members` and `leader`.

        Raises OwnerUncertain where it cannot be read.
        """
        await self._is_current.wait()
        if self._fault:
            raise OwnerUncertain(f"The brokers of the cluster cannot be read: {self._fault}")

    async def read(self) -> dict[str, Member]:
        """Returns the registrations, by name. Raises MetadataError."""
        names = await self._store.children(BROKERS)
        found = await asyncio.gather(*(self._store.get(f"{BROKERS}/{name}") for name in names))
        before, self._decoded = self._decoded, {}
        for name, node in zip(names, found, strict=True):
            if node is not None:
                try:
                    value, member = before.get(name, (b"", None))
                    # By value: a node that is made anew has the version of the former one.
                    if member is None or value != node.value:
                        member = decode_member(name, node.value)
                    self._decoded[name] = node.value, member
                except ValueError as error:
                    log.warning("! the registration of broker %s cannot be read: %s", name, error)
        return {name: member for name, (_, member) in self._decoded.items()}

    async def _read(self) -> None:
        async with self._one_read:
            members = await self.read()
            if self._is_candidate and self._name not in members:
                # Somebody has removed it; its session lives.
                await self.register()
                members = await self.read()
            self._note_members(members)
            self._note_leader(await self._elect())

    def _note_members(self, members: Mapping[str, Member]) -> None:
        for name in members.keys() - self.members.keys():
            log.info("+ broker %s is in the cluster", name)
        for name in self.members.keys() - members.keys():
            log.info("- broker %s has left the cluster", name)
        self.members = members

    def _note_leader(self, leader: str | None) -> None:
        if leader != self.leader:
            log.info("broker %s leads the cluster", leader)
        self.leader = leader

    async def _elect(self) -> str | None:
        """Returns the leader's name; leads if nobody does."""
        while True:
            node = await self._store.get(LEADER)
            if node is not None:
                try:
                    leader = decode_leader(node.value)
                except ValueError as error:
                    raise ValueError(f"node {LEADER} names no leader: {error}") from error
                self._has_lead = self._has_lead and leader == self._name
                return leader
            if not self._is_candidate:
                return None
            try:
                await self._store.put_all([Ephemeral(LEADER, self._leader_value)])
            except BadVersion:
                continue  # Another was faster.
            self._has_lead = True
            return self._name


async def put_own(store: MetadataStore, key: str, value: bytes) -> None:
    """Makes an ephemeral key of this session, in place of one that an earlier session of this broker has left.

    The caller makes sure that no other process keeps the key. Raises MetadataError.
    """
    while True:
        try:
            await store.put_all([Ephemeral(key, value)])
            return
        except BadVersion:
            await store.delete(key)
