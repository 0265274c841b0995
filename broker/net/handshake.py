"""Handlers of CONNECT, AUTH_RESPONSE, PING and PONG. There is no authentication yet."""

from __future__ import annotations

import logging

from broker.net.ports import VERSION_WITH_ENTRY_METADATA, Connection
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import AuthenticationError, BaseCommand

log = logging.getLogger("magnetar.net")


def connect(cnx: Connection, command: BaseCommand) -> None:
    """Handles CONNECT. Without authentication every method and role is accepted, as in Pulsar."""
    if cnx.connected:
        raise ProtocolError("a second CONNECT")
    request = command.connect
    cnx.connected = True
    cnx.client_version = request.client_version
    # A newer client keeps to the version that CONNECTED names.
    cnx.protocol_version = min(request.protocol_version, answers.PROTOCOL_VERSION_MAX)
    cnx.accepts_entry_metadata = (
        cnx.context.settings.expose_entry_metadata
        and request.protocol_version >= VERSION_WITH_ENTRY_METADATA
        and request.feature_flags.supports_broker_entry_metadata
    )
    log.info("+ %s %s protocol %d", cnx.address, cnx.client_version, request.protocol_version)
    cnx.send(
        answers.connected(
            cnx.context.server_version, cnx.protocol_version, cnx.context.settings.message_bytes_max
        )
    )


def ping(cnx: Connection, command: BaseCommand) -> None:
    """Handles PING."""
    cnx.send(answers.PONG)


def pong(cnx: Connection, command: BaseCommand) -> None:
    """Handles PONG: nothing to do, because `ServerCnx` noted the arrival of bytes."""


def auth_response(cnx: Connection, command: BaseCommand) -> None:
    """Handles AUTH_RESPONSE, which no client should send here: the broker never asks for it."""
    cnx.send(answers.error(answers.NO_REQUEST_ID, AuthenticationError, "Failed to authenticate"))
