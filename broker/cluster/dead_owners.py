"""DeadOwners: lookups of a bundle whose owner was killed wait for the end of its session, or until it is back.

A killed broker keeps its bundles until ZooKeeper ends its session. A client that is sent to its address until then tries
again after pauses that double, up to a minute, and so may come back long after the bundle has a new owner. The answer waits
instead: the port of a killed broker refuses connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from broker.service.topics.topic_ownership import Addresses

log = logging.getLogger("magnetar")

PROBE_EVERY_NS: Final = 1_000_000_000
"""The least time between two connections to one owner."""
CONNECT_S: Final = 1.0
"""Longest wait for a connection. A broker that is slow to take one is alive, or its machine is gone without a word."""
_LOOK_S: Final = 0.1
"""Seconds between two reads of the bundle's node while an answer waits."""


class DeadOwners:
    """Knows the owners whose ports refused a connection a moment ago."""

    def __init__(self, now_ns: Callable[[], int], wait_s: float) -> None:
        """`wait_s`: how long an answer waits for the end of a session."""
        self._now_ns = now_ns
        self._looks = int(wait_s / _LOOK_S)
        self._probes: dict[str, tuple[int, asyncio.Task[bool]]] = {}
        """By address: when the last connection was tried, and whether it was refused."""
        self._waits: dict[str, asyncio.Task[Addresses | None]] = {}
        """By bundle; all lookups of a bundle wait together."""

    @property
    def waited_for(self) -> int:
        """Number of bundles for whose owner's end of session lookups wait."""
        return len(self._waits)

    async def successor(
        self, bundle: str, owner: Addresses, current: Callable[[str], Awaitable[Addresses | None]]
    ) -> Addresses | None:
        """Returns the owner, or what `current` returns once a dead owner's session has ended.

        Returns a dead owner once it listens again, or if its session outlasts the wait. Raises what `current` raises.
        """
        if not await self._is_dead(owner):
            return owner
        wait = self._waits.get(bundle)
        if wait is None:
            wait = self._waits[bundle] = asyncio.ensure_future(self._wait(bundle, owner, current))
            wait.add_done_callback(lambda _: self._waits.pop(bundle))
        # Shielded: a client that disconnects must not end the wait of others.
        return await asyncio.shield(wait)

    async def _wait(
        self, bundle: str, owner: Addresses, current: Callable[[str], Awaitable[Addresses | None]]
    ) -> Addresses | None:
        for _ in range(self._looks):
            await asyncio.sleep(_LOOK_S)
            found = await current(bundle)
            # One that was started again takes its bundles again when clients come: its former session may last long.
            if found != owner or not await self._is_dead(owner):
                return found
        return owner

    async def _is_dead(self, owner: Addresses) -> bool:
        url = owner.service_url or owner.service_url_tls
        now_ns = self._now_ns()
        probed_ns, probe = self._probes.get(url, (0, None))
        if probe is None or (probe.done() and now_ns - probed_ns > PROBE_EVERY_NS):
            is_known = probe is not None and probe.result()
            probe = asyncio.ensure_future(_tried(url, is_known=is_known))
            self._probes[url] = now_ns, probe
        return probe.result() if probe.done() else await asyncio.shield(probe)


async def _tried(url: str, *, is_known: bool) -> bool:
    """Returns True where nobody listens at the address; logs that unless it is known."""
    is_dead = await _refuses(url)
    if is_dead and not is_known:
        log.warning(
            "! nobody listens at %s, the owner of a bundle; lookups wait until it does, or its session has ended",
            url,
        )
    return is_dead


async def _refuses(url: str) -> bool:
    """Returns True where nobody listens at the address."""
    try:
        async with asyncio.timeout(CONNECT_S):
            address = urlsplit(url)
            # One by one: asyncio joins the errors of several addresses to a text that no longer says "refused".
            for host in await _addresses_of(address.hostname or "", address.port or 0):
                with suppress(ConnectionRefusedError):
                    _, writer = await asyncio.open_connection(host, address.port)
                    writer.close()
                    return False
    except (OSError, TimeoutError, ValueError):
        return False  # Not a word from there says nothing about its session.
    return True


async def _addresses_of(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]
