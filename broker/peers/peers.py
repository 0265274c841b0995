"""Peers: one request to another broker, one answer.

A request goes to a broker that is registered in the cluster, and to no other: it has this broker's credentials. It goes
over TLS or not at all where `brokerClientTlsEnabled` says so, and is refused here while credentials are asked for and none
are set.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from broker.peers.contexts import PeerContexts
from broker.peers.peer_settings import PeerSettings, role_refused, without_port
from broker.peers.wires import Wires
from broker.service.namespaces.namespaces import Json
from broker.service.topics.topic_ownership import Addresses
from foundation.model.errors import BrokerError, ServiceNotReady
from foundation.model.topic_name import TopicName
from foundation.settings.errors import SettingsError
from foundation.tls.errors import TlsError

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse

STEPS_MAX: Final = 3
"""Brokers that a request may be sent to, one after the other: any, the leader, the chosen one."""
TIMEOUT_S: Final = 25.0
"""Longest wait for an answer. Shorter than that of a client (`magnetarHttpRequestTimeoutSeconds`, 30 by default), so that
its answer names a broker that stands still."""
CONNECT_S: Final = 5.0
"""Longest wait for a connection: a broker that has died is found quickly, or its machine is gone without a word."""
BYTES_MAX: Final = 64 << 20
"""Longest answer: the statistics of a few thousand partitions."""
_ROLE_REFUSED: Final = (401, 403)
_NOT_READY: Final = 503

log = logging.getLogger("magnetar")


class PeerRefused(BrokerError):
    """Another broker has refused a request."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status  # type: ignore[misc]  # of this answer
        """HTTP status of its answer."""


class PeerAnswer(NamedTuple):
    """An answer to a request that succeeded."""

    body: Json
    """The decoded body; None for an empty one."""
    by: Addresses
    """The broker that has answered."""


class Peers:
    """Requests to the other brokers; the connections stay open. Call `close` at the end."""

    def __init__(self, current: Callable[[], PeerSettings]) -> None:
        """`current` returns the settings that hold now; a token is read from its file each time."""
        self.brokers: Callable[[], Mapping[str, Addresses]] = dict
        """Returns the brokers of the cluster by name; the ownership sets it."""
        self._contexts = PeerContexts()
        self.wires = Wires(current, lambda: self.brokers(), self._contexts)
        """Commands to their data ports."""
        self._current = current
        self._session: ClientSession | None = None
        self._refused_by: set[str] = set()
        """Brokers whose refusal of this broker's role is in the log."""

    async def request(
        self,
        to: Addresses,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
    ) -> PeerAnswer:
        """Sends a request, and follows where that broker sends it on to. `path` is quoted already.

        Raises PeerRefused for an answer that is an error, and ServiceNotReady without an answer. A refusal of this broker's
        role has the status 503: the client of this broker, whose rights are checked here, cannot mend it.
        """
        settings = self._settings()
        url = _url(settings, to, path, query or {})
        for _ in range(STEPS_MAX):
            by = self._broker_at(settings, url)
            status, location, found = await self._ask(settings, method, url, body)
            if status != 307:
                if status in _ROLE_REFUSED:
                    raise self._role_refused(by, status, _reason(found, by, status))
                if status >= 400:
                    raise PeerRefused(_reason(found, by, status), status)
                return PeerAnswer(found, by)
            url = location
        raise ServiceNotReady(f"{path} was sent on {STEPS_MAX} times; the last broker named {url}")

    async def find_owner(self, topic: TopicName, first: Addresses, *, authoritative: bool) -> Addresses:
        """Returns the owner of the topic's bundle; with `authoritative` `first` takes it while nobody has it.

        Raises as `request`.
        """
        path = f"/lookup/v2/topic/{topic.domain}/{topic.namespace}/{quote(topic.local, safe='')}"
        answer = await self.request(
            first, "GET", path, query={"authoritative": "true"} if authoritative else None
        )
        found = answer.body if isinstance(answer.body, dict) else {}
        for addresses in self.brokers().values():
            if addresses.broker_id in (_host(found.get("httpUrl")), _host(found.get("httpUrlTls"))):
                return addresses
        raise ServiceNotReady(f"the owner of {topic} is no broker of this cluster")

    async def web_socket(self, to: Addresses, path: str, query: Mapping[str, str]) -> ClientWebSocketResponse:
        """Opens a WebSocket at a broker, for one of this broker's clients. Raises as `request`.

        Its texts have no limit here: a message is as long as its producer made it, in several chunks if need be.
        """
        from aiohttp import ClientError, WSServerHandshakeError
        from yarl import URL

        settings = self._settings()
        url = _url(settings, to, path, query)
        self._broker_at(settings, url)
        context = await self._context(settings)
        try:
            return await self._opened().ws_connect(
                # `encoded`: see `_ask`.
                URL(url, encoded=True),
                headers=settings.headers,
                ssl=context,
                max_msg_size=0,
                autoclose=False,
            )
        except WSServerHandshakeError as error:
            if error.status in _ROLE_REFUSED:
                raise self._role_refused(to, error.status, "no WebSocket") from error
            raise PeerRefused(
                f"broker {to.broker_id} refused the WebSocket with {error.status}", error.status
            ) from error
        except (ClientError, TimeoutError, OSError) as error:
            raise ServiceNotReady(f"broker {to.broker_id} does not answer: {error or 'no answer'}") from error

    async def close(self) -> None:
        """Ends the connections."""
        await self.wires.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _settings(self) -> PeerSettings:
        try:
            return self._current()
        except SettingsError as error:
            raise ServiceNotReady(str(error)) from error

    def _broker_at(self, settings: PeerSettings, url: str) -> Addresses:
        """Returns the broker with this URL. Raises ServiceNotReady for a stranger, and for another kind of port."""
        if settings.refusal:
            raise ServiceNotReady(f"No request to another broker is sent: {settings.refusal}")
        for addresses in self.brokers().values():
            base = addresses.admin_url_tls if settings.uses_tls else addresses.admin_url
            if base and url.startswith(f"{base}/"):
                return addresses
        raise ServiceNotReady(
            f"{url} is no broker of this cluster, or no port that brokerClientTlsEnabled allows"
        )

    async def _ask(self, settings: PeerSettings, method: str, url: str, body: Json) -> tuple[int, str, Json]:
        # Late: a broker alone sends no requests.
        from aiohttp import ClientError
        from yarl import URL

        context = await self._context(settings)
        # `encoded`: the path goes as it is. Made shorter, that of the subscription `..` would be that of its topic.
        to = URL(url, encoded=True)
        try:
            async with self._opened().request(
                method, to, json=body, headers=settings.headers, ssl=context, allow_redirects=False
            ) as answer:
                content = await answer.content.read(BYTES_MAX)
                found = _decoded(content)
                return answer.status, str(answer.headers.get("Location", "")), found
        except ClientError as error:
            reason = str(error) or type(error).__name__
            raise ServiceNotReady(f"broker {urlsplit(url).netloc} does not answer: {reason}") from error
        except TimeoutError as error:
            # It has accepted the connection. A change may have been made.
            raise ServiceNotReady(
                f"broker {urlsplit(url).netloc} has not finished within {TIMEOUT_S:g} s; it is busy or stands still"
            ) from error
        except OSError as error:
            raise ServiceNotReady(f"broker {urlsplit(url).netloc} does not answer: {error}") from error

    async def _context(self, settings: PeerSettings) -> ssl.SSLContext | bool:
        """Returns what a request says of TLS. One with another context than those before it gets a new connection."""
        if not settings.uses_tls:
            return True
        try:
            return await self._contexts.current(settings.files)
        except TlsError as error:
            raise ServiceNotReady(f"TLS towards brokers: {error}") from error

    def _opened(self) -> ClientSession:
        # Nothing is awaited here, so requests that come together share one session.
        if self._session is None:
            from aiohttp import ClientSession, ClientTimeout, TCPConnector

            self._session = ClientSession(
                # In UTF-8: with escapes a body could be three times as long as the client's, and above the limit there.
                json_serialize=partial(json.dumps, ensure_ascii=False, separators=(",", ":")),
                # No limit: an open WebSocket keeps its connection, and 100 of them (the default) would leave none for
                # requests, whose number their classes bound.
                connector=TCPConnector(limit=0),
                timeout=ClientTimeout(total=TIMEOUT_S, sock_connect=CONNECT_S),
            )
        return self._session

    def _role_refused(self, by: Addresses, status: int, reason: str) -> PeerRefused:
        """Returns the refusal of this broker's own role, and logs the first of each broker."""
        text = role_refused(by.broker_id, f"{status}: {reason}")
        if by.broker_id not in self._refused_by:
            self._refused_by.add(by.broker_id)
            log.warning("! %s", text)
        return PeerRefused(text, _NOT_READY)


def _url(settings: PeerSettings, to: Addresses, path: str, query: Mapping[str, str]) -> str:
    base = to.admin_url_tls if settings.uses_tls else to.admin_url
    if not base:
        raise ServiceNotReady(without_port(to, "webServicePort", uses_tls=settings.uses_tls))
    text = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query.items())
    return f"{base}{path}?{text}" if text else f"{base}{path}"


def _decoded(content: bytes) -> Json:
    if not content:
        return None
    try:
        found: Json = json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
    return found


def _reason(found: Json, by: Addresses, status: int) -> str:
    if isinstance(found, dict) and isinstance(reason := found.get("reason"), str):
        return reason
    return f"broker {by.broker_id} answered {status}"


def _host(url: Json) -> str:
    return urlsplit(url).netloc if isinstance(url, str) and url else "-"
