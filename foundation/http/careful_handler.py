"""CarefulHandler: aiohttp's handler of a connection, which never repeats bytes that are no request.

They may be a part of a credential: aiohttp's own texts have the beginning of a header that is too long.
It also takes what Pulsar's proxy sends after a redirect, which aiohttp alone refuses.
"""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

FAULTS_OF_PEERS: Final = (HttpProcessingError, web.RequestPayloadError, ConnectionError)
"""Errors that bytes of a peer cause, and a peer that leaves."""
AGENT: Final = b"\r\nUser-Agent: "
JETTYS: Final = re.compile(rb"\r\nUser-Agent: Jetty/[^\r\n]*")


def careful_handler(server: web.Server | None) -> web.RequestHandler:
    """Returns the handler of a new connection of a server whose runner is set up."""
    assert server is not None, "made by the runner's setup"
    handler = server()
    # aiohttp's server makes no handler of another class.
    handler.__class__ = CarefulHandler
    return handler


class CarefulHandler(web.RequestHandler):
    """Answers and logs what is wrong, without the bytes."""

    __slots__ = ()

    def data_received(self, data: bytes) -> None:
        """Called by the loop with what the peer sent."""
        begins_request = self._current_request is None and not self._messages
        super().data_received(with_one_user_agent(data) if begins_request else data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Called by aiohttp for a request that it cannot read, and for what a route raises."""
        if not isinstance(exc, FAULTS_OF_PEERS):
            return super().handle_error(request, status, exc, message)
        reason = fault_of_peer(exc)
        self.logger.warning("! HTTP from %s: %s", request.remote, reason)
        # aiohttp calls a body that cannot be read a defect of ours.
        answer = web.Response(status=400 if status == 500 else status, text=reason)
        answer.force_close()
        return answer

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Called by aiohttp with each answer, its own refusal of an unknown Expect included."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp.text = "Expect: 100-continue is the only expectation that is known"
        return await super().finish_response(request, resp, start_time)


def with_one_user_agent(request: bytes) -> bytes:
    """Takes Jetty's own User-Agent out of the head of a request that has another one too.

    Pulsar's proxy (4.0.8 measured) follows a 307 with both, and aiohttp refuses a header that stands twice.
    """
    head, end, body = request.partition(b"\r\n\r\n")
    if head.count(AGENT) < 2:
        return request
    return JETTYS.sub(b"", head, count=1) + end + body


def fault_of_peer(error: Exception) -> str:
    """Describes an error that bytes of a peer cause, without these bytes."""
    if isinstance(error, LineTooLong):
        # Its arguments are the beginning of the line and the limit.
        return f"A line of the request, or one of its headers, is longer than {error.args[1]} bytes"
    if isinstance(error, HttpProcessingError):
        return f"{type(error).__name__}: the request is not valid HTTP"
    return f"{type(error).__name__}: the request ended early, or its body cannot be read"
