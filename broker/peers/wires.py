"""Wires: commands to the data ports of the other brokers, over one connection to each, which stays open.

As with requests to admin ports, nothing is sent to a broker that is not registered in the cluster, nothing in the clear
where `brokerClientTlsEnabled` says so, and nothing without credentials where the brokers ask for them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from broker.peers.contexts import PeerContexts
from broker.peers.peer_connection import PeerConnection
from broker.peers.peer_settings import PeerSettings, without_port
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import ServiceNotReady
from foundation.settings.errors import SettingsError
from foundation.tls.contexts import ClientFiles
from foundation.tls.errors import TlsError

TIMEOUT_S: Final = 30.0
"""Longest wait for an answer; the connection ends then, so that the request is not carried out later."""
CONNECT_S: Final = 5.0
"""Longest wait for a connection and its handshakes."""


class Wires:
    """Call `close` at the end."""

    def __init__(
        self,
        current: Callable[[], PeerSettings],
        brokers: Callable[[], Mapping[str, Addresses]],
        contexts: PeerContexts,
    ) -> None:
        """`current` returns the settings that hold now, `brokers` the brokers of the cluster by name."""
        self._current = current
        self._contexts = contexts
        self._brokers = brokers
        self._made: dict[tuple[str, ClientFiles], asyncio.Task[PeerConnection]] = {}
        """Connections by URL and by the files of their TLS."""

    async def tell(self, to: Addresses, encode: Callable[[int], bytes]) -> None:
        """Sends the command that `encode` makes of a number of the request; returns when the broker has done it.

        Raises ServiceNotReady.
        """
        try:
            settings = self._current()
        except SettingsError as error:
            raise ServiceNotReady(str(error)) from error
        url = self._url(to, settings)
        key = url, settings.files
        made = self._made.get(key)
        if made is None or (made.done() and (made.exception() is not None or made.result().is_lost)):
            made = self._made[key] = asyncio.ensure_future(self._connect(to, url, settings))
            # Marks an error as seen: those who wait may have been cancelled.
            made.add_done_callback(lambda task: task.cancelled() or task.exception())
        # Shielded: others wait for the same connection.
        connection = await asyncio.shield(made)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await connection.ask(encode)
        except TimeoutError:
            connection.close()
            raise ServiceNotReady(f"broker {to.broker_id} does not answer") from None

    async def close(self) -> None:
        """Ends the connections."""
        made, self._made = self._made, {}
        for task in made.values():
            if task.done() and task.exception() is None:
                task.result().close()
            else:
                task.cancel()

    def _url(self, to: Addresses, settings: PeerSettings) -> str:
        if settings.refusal:
            raise ServiceNotReady(f"Nothing is sent to another broker: {settings.refusal}")
        if to not in self._brokers().values():
            raise ServiceNotReady(f"{to.broker_id} is no broker of this cluster")
        url = to.service_url_tls if settings.uses_tls else to.service_url
        if not url:
            raise ServiceNotReady(without_port(to, "brokerServicePort", uses_tls=settings.uses_tls))
        return url

    async def _connect(self, to: Addresses, url: str, settings: PeerSettings) -> PeerConnection:
        address, context = urlsplit(url), None
        try:
            async with asyncio.timeout(CONNECT_S):
                if settings.uses_tls:
                    context = await self._contexts.current(settings.files)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: PeerConnection(to.broker_id, lambda: self._current().proof),
                    *(str(address.hostname), int(address.port or 0)),
                    ssl=context,
                )
                try:
                    await connection.connected
                except BaseException:
                    connection.close()
                    raise
        except (OSError, TimeoutError, TlsError, ssl.SSLError, SettingsError) as error:
            reason = str(error) or type(error).__name__
            raise ServiceNotReady(f"broker {address.netloc} does not answer: {reason}") from error
        return connection
