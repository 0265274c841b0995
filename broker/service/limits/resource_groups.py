"""ResourceGroups: limits that all topics of several namespaces share, as an administrator names and sets them.

A namespace is in one group at most (its policy `resource_group_name`). The group's rates hold beside those of the broker and
of each topic. Groups are below Pulsar's path of the metadata store and in memory, so that a topic finds its group without
waiting; in a shared store they follow changes of other processes.

Brokers on one store divide the rates (`broker/cluster/group_shares.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Final

from bookkeeper.metadata.documents import Documents
from bookkeeper.metadata.metadata_store import MetadataStore
from broker.service.limits.broker_limits import BrokerLimits
from broker.service.namespaces.namespaces import Json, NamespaceNotFound, Namespaces
from broker.service.namespaces.stored_forms import dump
from broker.service.policies.effective_policies import RESOURCE_GROUP
from broker.service.policies.forms import WrongType
from broker.service.policies.values import RESOURCE_GROUP_RATES, ResourceGroupRates
from foundation.loop.uninterrupted import uninterrupted
from foundation.model.errors import BrokerError
from foundation.model.topic_name import check_no_folder

ROOT: Final = "/admin/resourcegroups"
"""Pulsar's path in the metadata store."""


class GroupNotFound(BrokerError):
    """No resource group has the name."""

    status = 404
    """HTTP status of the answer."""


class GroupRefused(BrokerError):
    """The request does not fit the groups that exist, or the namespaces in them."""

    status = 412
    """HTTP status of the answer."""


class ResourceGroups:
    """Reads and changes the groups by name; call `open` first."""

    def __init__(self, store: MetadataStore, namespaces: Namespaces, limits: BrokerLimits) -> None:
        """`limits` gets the rates of each group."""
        self._store = store
        self._stored = Documents(store, ROOT, _parse, _encode, quoted=True, told=self._group_told)
        self._rates = self._stored.values
        self._namespaces = namespaces
        self._limits = limits
        # A check and its write belong together: a group must not go while a namespace joins it.
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """Loads all groups."""
        await self._stored.open()
        for name, rates in self._rates.items():
            self._limits.set_group(name, rates)

    async def close(self) -> None:
        """Follows the store no longer."""
        await self._stored.close()

    def names(self) -> Sequence[str]:
        """Returns the names of all groups, sorted."""
        return sorted(self._rates)

    async def read_newest(self, name: str) -> None:
        """Reads a group as it is stored now, sooner than a watch tells. Raises MetadataError."""
        if name not in (".", ".."):  # No path can have these names, so no group has.
            await self._stored.read(name)

    def get(self, name: str) -> ResourceGroupRates:
        """Returns the rates of a group. Raises GroupNotFound."""
        rates = self._rates.get(name)
        if rates is None:
            raise GroupNotFound("ResourceGroup does not exist")
        return rates

    async def put(self, name: str, changes: Mapping[str, Json]) -> None:
        """Creates a group, or changes the members of its rates that are given; open topics obey at once.

        Raises WrongType for a member of another type, InvalidTopicName for a name that no path can have.
        """
        check_no_folder("Resource group", name)

        def changed(before: ResourceGroupRates | None) -> ResourceGroupRates:
            return RESOURCE_GROUP_RATES.read({**_members_of(before or ResourceGroupRates()), **changes})

        async with self._changing:
            await uninterrupted(self._stored.change(name, changed))
            await self._apply(name)

    async def delete(self, name: str) -> None:
        """Deletes a group. GroupNotFound; GroupRefused while a namespace is in it."""
        async with self._changing:
            if self._store.is_shared:
                # Another broker may have made the group, or put a namespace into it, a moment ago.
                await self.read_newest(name)
                await self._namespaces.stored.policies.read_again()
            self.get(name)
            if self._members(name):
                raise GroupRefused("ResourceGroup is in use")
            await uninterrupted(self._stored.change(name, _without))
            await self._apply(name)

    async def assign(self, namespace: str, name: str) -> None:
        """Puts a namespace into a group. NamespaceNotFound; GroupRefused for a missing group."""
        async with self._changing:
            if not self._namespaces.exists(namespace):
                raise NamespaceNotFound("Namespace policies does not exist")
            if name not in self._rates:
                await self.read_newest(name)
            if name not in self._rates:
                raise GroupRefused("ResourceGroup does not exist")
            await self._namespaces.set_policy(namespace, RESOURCE_GROUP, name)

    async def _group_told(self, name: str, _before: ResourceGroupRates | None) -> None:
        await self._apply(name)

    async def _apply(self, name: str) -> None:
        rates = self._rates.get(name)
        if rates is None:
            self._limits.forget_group(name)
        else:
            self._limits.set_group(name, rates)
        # A limit that begins or ends must enter or leave the topics' own lists of limits.
        for namespace in self._members(name):
            if self._namespaces.listener is not None:
                await self._namespaces.listener.namespace_changed(namespace)

    def _members(self, name: str) -> list[str]:
        return [
            namespace
            for tenant in self._namespaces.tenants()
            for namespace in self._namespaces.names(tenant)
            if self._namespaces.policy(namespace, RESOURCE_GROUP) == name
        ]


def _parse(data: bytes) -> ResourceGroupRates:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError(f"an object is expected, not {type(found).__name__}")
    try:
        return RESOURCE_GROUP_RATES.read(found)
    except WrongType as error:
        raise ValueError(str(error)) from error


def _encode(rates: ResourceGroupRates, _before: ResourceGroupRates | None) -> bytes:
    # As Pulsar, which stores the given members alone.
    unset = _members_of(ResourceGroupRates())
    return dump({name: rate for name, rate in _members_of(rates).items() if rate != unset[name]})


def _members_of(rates: ResourceGroupRates) -> Mapping[str, Json]:
    members = RESOURCE_GROUP_RATES.write(rates)
    assert isinstance(members, dict), "a structure is written as an object"
    return members


def _without(_: ResourceGroupRates | None) -> None:
    """Returns no group, whatever was there."""
