"""The principal of a request at the admin port: `request[PRINCIPAL]`, set before any other code sees the request.

A request proves its role by `Authorization: Bearer TOKEN`, `Authorization: Basic BASE64`, the query parameter `token`, or
the certificate of its connection. A request that proves nothing gets 401 and Pulsar's HTML page, whatever its path.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from broker.admin.http.answers import html_page
from broker.security.authentication.authenticator import Authenticator
from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    checked_role,
)
from broker.security.principal import NOBODY, Principal
from foundation.tls.listener import common_name

PRINCIPAL = web.RequestKey("principal", Principal)
"""The roles of a request; NOBODY without authentication."""

EXPIRES_AT_S = web.RequestKey("expires_at_s", float)
"""Seconds since 1970 at which the proof of the role ends; missing for one without an end."""

METRICS: Final = frozenset(("/metrics", "/metrics/"))
"""Paths that ask for credentials only with `authenticateMetricsEndpoint`."""
OPEN: Final = frozenset(("/status.html", "/"))
"""Paths that never ask for credentials: load balancers read the first, as in Pulsar, and the second is a page."""
OPEN_BELOW: Final = "/console/"
"""Begins the paths of the console's files, which hold no data; a page must be there before it can be given a token."""

METHOD_HEADER: Final = "X-Pulsar-Auth-Method-Name"
"""Names the one method that a client uses."""
ORIGINAL_HEADER: Final = "X-Original-Principal"
"""Names the role for which a proxy asks."""

_CHALLENGES: Final = {"token": "Bearer", "basic": 'Basic realm="Pulsar", charset="UTF-8"'}
"""Value of WWW-Authenticate by method (RFC 9110, 11.6.1). A certificate has no such word."""


def find_principal(authenticator: Authenticator | None) -> Middleware:
    """Returns the middleware; without an authenticator every request is NOBODY's."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if authenticator is None or _is_open(request.path, authenticator):
            request[PRINCIPAL] = NOBODY
            return await handler(request)
        try:
            identity = await _identify(request, authenticator)
            original = checked_role(request.headers.get(ORIGINAL_HEADER, ""))
        except AuthenticationFailed as error:
            return await _refuse(request, authenticator, error)
        request[PRINCIPAL] = Principal(identity.role, original)
        if identity.expires_at_s is not None:
            request[EXPIRES_AT_S] = identity.expires_at_s
        return await handler(request)

    return guard


def _is_open(path: str, authenticator: Authenticator) -> bool:
    if path in OPEN or path.startswith(OPEN_BELOW):
        return True
    return path in METRICS and not authenticator.settings.checks_metrics


async def _identify(request: web.Request, authenticator: Authenticator) -> Identity:
    """Returns the role of the first method, in the order of the providers, that the request proves itself by."""
    offered = {one.method: one for one in _offered(request)}
    only = request.headers.get(METHOD_HEADER)
    if only is not None:
        offered = {only: offered.get(only, Credentials(only, host=_host(request)))}
    failure: AuthenticationFailed | None = None
    for method in dict.fromkeys(provider.method for provider in authenticator.providers):
        if method not in offered:
            continue
        try:
            return await authenticator.identify(offered[method])
        except AuthenticationFailed as error:
            failure = error
    if failure is not None:
        # Pulsar takes such a request for an anonymous one. A wrong password is no wish to be anonymous.
        raise failure
    return authenticator.anonymous()


def _offered(request: web.Request) -> list[Credentials]:
    """Returns the credentials that the request carries; a scheme is written as clients of Pulsar write it."""
    host = _host(request)
    found = []
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme == "Bearer":
        # aiohttp decodes bytes that are no text in this way: they are a wrong token, no error of the server.
        found.append(Credentials("token", value.strip().encode(errors="surrogateescape"), host))
    elif token := request.query.get("token"):
        found.append(Credentials("token", token.encode(), host))
    if scheme == "Basic":
        found.append(Credentials("basic", _decoded(value), host))
    if (name := common_name(request.transport)) is not None:
        found.append(Credentials("tls", host=host, common_name=name))
    return found


def _decoded(value: str) -> bytes:
    """Returns the text after `Basic`; an empty one, which proves nothing, for broken base64."""
    try:
        return base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _host(request: web.Request) -> str:
    return request.remote or ""


async def _refuse(
    request: web.Request, authenticator: Authenticator, error: AuthenticationFailed
) -> web.Response:
    """Answers after a pause that grows with the failures of the address."""
    # The method only: the path may hold a name of the user's, and the query a token.
    where = f"{_host(request)} {request.method} at the admin port"
    delay_s = authenticator.refusal_delay_s(where, _host(request), error)
    if delay_s:
        await asyncio.sleep(delay_s)
    methods = dict.fromkeys(provider.method for provider in authenticator.providers)
    challenges = [_CHALLENGES[method] for method in methods if method in _CHALLENGES]
    headers = {"WWW-Authenticate": ", ".join(challenges)} if challenges else {}
    return html_page(401, "Authentication required", headers)
