"""PeerContexts: the TLS context of connections to other brokers, made again when one of its files has changed."""

from __future__ import annotations

import asyncio
import logging
import ssl

from foundation.tls.contexts import ClientFiles, client_context
from foundation.tls.errors import TlsError
from foundation.tls.reloaded import State, state_of

log = logging.getLogger("magnetar")


class PeerContexts:
    """The context of the files that were asked for last."""

    def __init__(self) -> None:
        self._of: tuple[ClientFiles, State] | None = None
        """The files of `_making`, and their state before they were read."""
        self._making: asyncio.Task[ssl.SSLContext] | None = None
        self._usable: tuple[ClientFiles, ssl.SSLContext] | None = None
        """The last context that could be made."""

    async def current(self, files: ClientFiles) -> ssl.SSLContext:
        """Returns the context of the files as they are now. Raises TlsError.

        Callers that come together wait for one context. Changed files that cannot be used leave the former context in place.
        """
        of = files, state_of(files.paths())
        if self._making is None or self._of != of or _has_failed(self._making):
            self._of = of
            self._making = asyncio.ensure_future(self._make(files))
            # Marks an error as seen: those who wait may have been cancelled.
            self._making.add_done_callback(_has_failed)
        # Shielded: others wait for the same context.
        return await asyncio.shield(self._making)

    async def _make(self, files: ClientFiles) -> ssl.SSLContext:
        try:
            # In a thread: the authorities of the operating system take 50 ms to read.
            context = await asyncio.to_thread(client_context, files)
        except TlsError as error:
            if self._usable is None or self._usable[0] != files:
                raise
            log.warning(
                "! changed certificates of brokerClient… are not used: %s; the former ones stay", error
            )
            return self._usable[1]
        self._usable = files, context
        return context


def _has_failed(making: asyncio.Task[ssl.SSLContext]) -> bool:
    return making.done() and (making.cancelled() or making.exception() is not None)
