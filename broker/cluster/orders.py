"""Orders: requests of the leader to the owners of bundles, as an administrator sends them."""

from __future__ import annotations

from broker.cluster.leases import Leases
from broker.cluster.members import Members
from broker.cluster.moves import Moves
from broker.peers.peers import Peers
from broker.service.topics.topic_ownership import Addresses, MoveKind
from foundation.model.errors import ServiceNotReady


class Orders:
    """Bundles are named `tenant/namespace/range`."""

    def __init__(self, members: Members, leases: Leases, moves: Moves, peers: Peers) -> None:
        self._members = members
        self._leases = leases
        self._moves = moves
        self._peers = peers

    async def move(self, bundle: str, owner: str, to: str, why: str) -> None:
        """Has the owner hand a bundle over to another broker. Raises BrokerError."""
        addresses = await self._check(bundle, owner)
        self._moves.note(MoveKind.DECIDED, bundle, f"{owner} hands it over to {to}: {why}")
        await self._peers.request(addresses, "PUT", _path(bundle, "unload"), query={"destinationBroker": to})

    async def divide(self, bundle: str, owner: str, unload: str, why: str) -> None:
        """Has the owner divide a bundle; with `unload` "true" the parts get new owners. Raises BrokerError."""
        addresses = await self._check(bundle, owner)
        self._moves.note(MoveKind.DECIDED, bundle, f"{owner} divides it: {why}")
        await self._peers.request(addresses, "PUT", _path(bundle, "split"), query={"unload": unload})

    async def _check(self, bundle: str, owner: str) -> Addresses:
        """Returns the owner's addresses. ServiceNotReady where the bundle has another owner by now."""
        member = self._members.members.get(owner)
        # A report may be older than a move, and the new owner may have little to do.
        if member is None or await self._leases.owner(bundle) != member.addresses:
            raise ServiceNotReady(f"{owner} does not own it any more")
        return member.addresses


def _path(bundle: str, action: str) -> str:
    return f"/admin/v2/namespaces/{bundle}/{action}"
