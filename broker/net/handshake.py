"""Handlers of CONNECT, AUTH_RESPONSE, PING and PONG."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from broker.net.credentials_refresh import Accepted
from broker.net.ports import VERSION_WITH_ENTRY_METADATA, Connection
from broker.net.rights import check_roles
from broker.security.authentication.authenticator import Authenticator
from broker.security.authentication.credentials import (
    AuthenticationFailed,
    Credentials,
    Identity,
    checked_role,
)
from broker.security.principal import Principal
from foundation.model.errors import Unauthorized
from protocol import answers
from protocol.errors import ProtocolError
from protocol.frame import FRAME_PADDING_BYTES
from protocol.pulsar_api_pb2 import AuthenticationError, BaseCommand, CommandConnect

log = logging.getLogger("magnetar.net")

FAILED: Final = answers.error(answers.NO_REQUEST_ID, AuthenticationError, "Failed to authenticate")
"""Answer to credentials that prove nothing: always the same text, so that a guesser learns nothing from it."""


def connect(cnx: Connection, command: BaseCommand) -> None:
    """Handles CONNECT. Without authentication every method and role is accepted, as in Pulsar."""
    if cnx.connected:
        raise ProtocolError("a second CONNECT")
    authenticator = cnx.context.authenticator
    if authenticator is None:
        _accept(cnx, command.connect)
        return
    # Frames after this one wait: they are handled as the role that is not known yet.
    cnx.pause()
    cnx.run(command, _authenticate(cnx, authenticator, command.connect), lambda _: FAILED)


async def _authenticate(cnx: Connection, authenticator: Authenticator, request: CommandConnect) -> None:
    try:
        method = _method_of(request)
        identity = await authenticator.identify(
            Credentials(method, request.auth_data, cnx.host, cnx.common_name)
        )
        accepted = [Accepted(method, identity.role, identity.expires_at_s)]
        original = await _original(cnx, authenticator, request)
        if original is not None:
            accepted.append(original)
        cnx.principal = Principal(identity.role, original.role if original is not None else None)
        check_roles(cnx)
        if cnx.is_open:
            _accept(cnx, request)
            supported = request.feature_flags.supports_auth_refresh
            cnx.refresh.watch(authenticator, accepted, supported=supported)
    except AuthenticationFailed as error:
        await _refuse(cnx, authenticator, error)
    except Unauthorized as error:
        cnx.send(answers.error(answers.NO_REQUEST_ID, error.code, str(error)))
        cnx.close(str(error))
    finally:
        cnx.go_on()


def _method_of(request: CommandConnect) -> str:
    """Returns the name of the method; old clients send a number, of which Pulsar's enumeration has the name."""
    if request.HasField("auth_method_name"):
        return request.auth_method_name
    if request.HasField("auth_method"):
        return _OLD_METHODS.get(request.auth_method, "none")
    return "none"


_OLD_METHODS: Final = {1: "ycav1", 2: "athens"}


async def _original(
    cnx: Connection, authenticator: Authenticator, request: CommandConnect
) -> Accepted | None:
    """Returns the role of the client behind a proxy, with its expiry; None for a direct connection.

    Whether the connection's own role may speak for another one is a matter of authorization.
    """
    if not request.original_principal:
        return None
    if not authenticator.settings.checks_original:
        return Accepted("none", checked_role(request.original_principal), None, original=True)
    method = request.original_auth_method or "none"
    identity = await authenticator.identify(
        Credentials(method, request.original_auth_data.encode(), cnx.host)
    )
    if identity.role is None:
        raise AuthenticationFailed("the client behind the proxy has no role")
    return Accepted(method, identity.role, identity.expires_at_s, original=True)


async def _refuse(cnx: Connection, authenticator: Authenticator, error: AuthenticationFailed) -> None:
    """Answers after a pause that grows with the failures of the address, then ends the connection."""
    delay_s = authenticator.refusal_delay_s(cnx.address, cnx.host, error)
    if delay_s:
        await asyncio.sleep(delay_s)
    cnx.send(FAILED)
    cnx.close("")


def _accept(cnx: Connection, request: CommandConnect) -> None:
    """Answers CONNECTED."""
    context = cnx.context
    message_bytes_max = context.settings.message_bytes_max
    cnx.connected = True
    cnx.inbox.accept(message_bytes_max + FRAME_PADDING_BYTES)
    cnx.client_version = request.client_version
    # A newer client keeps to the version that CONNECTED names.
    cnx.protocol_version = min(request.protocol_version, answers.PROTOCOL_VERSION_MAX)
    cnx.accepts_entry_metadata = (
        context.settings.expose_entry_metadata
        and request.protocol_version >= VERSION_WITH_ENTRY_METADATA
        and request.feature_flags.supports_broker_entry_metadata
    )
    cnx.knows_sources = request.feature_flags.supports_repl_dedup_by_lid_and_eid
    log.info("+ %s %s protocol %d", cnx.address, cnx.client_version, request.protocol_version)
    scalable, watched = context.settings.scalable_topics, context.settings.coordinators_watched
    cnx.send(
        answers.connected(
            context.server_version,
            cnx.protocol_version,
            message_bytes_max,
            topic_watchers=context.settings.topic_watchers,
            scalable_topics=scalable,
            coordinators_watched=scalable and watched and context.coordinators is not None,
        )
    )


def ping(cnx: Connection, command: BaseCommand) -> None:
    """Handles PING."""
    cnx.send(answers.PONG)


def pong(cnx: Connection, command: BaseCommand) -> None:
    """Handles PONG: nothing to do, because `ServerCnx` noted the arrival of bytes."""


def auth_response(cnx: Connection, command: BaseCommand) -> None:
    """Handles AUTH_RESPONSE: new credentials for those that expired. One without a question is an error."""
    authenticator = cnx.context.authenticator
    expired = cnx.refresh.challenged
    if authenticator is None or expired is None:
        cnx.send(FAILED)
        return
    # One answer per question; a second one finds none open.
    cnx.refresh.challenged = None
    response = command.authResponse.response
    # The certificate of the connection is the proxy's, which proves nothing about the client behind it.
    certificate = None if expired.original else cnx.common_name
    credentials = Credentials(response.auth_method_name or "none", response.auth_data, cnx.host, certificate)
    cnx.run(command, _renew(cnx, authenticator, credentials, expired), lambda _: FAILED)


async def _renew(
    cnx: Connection, authenticator: Authenticator, credentials: Credentials, expired: Accepted
) -> None:
    try:
        identity = await authenticator.identify(credentials)
        _check_same_role(identity, expired)
    except AuthenticationFailed as error:
        await _refuse(cnx, authenticator, error)
        return
    cnx.refresh.renew(expired, identity.expires_at_s)


def _check_same_role(identity: Identity, expired: Accepted) -> None:
    """Refuses another role: rights were decided for the first one when producers and consumers were opened."""
    if identity.role != expired.role:
        raise AuthenticationFailed("the new credentials are of another role")
