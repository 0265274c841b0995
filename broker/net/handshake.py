"""CONNECT, authentication (none yet: every method is accepted), PING and PONG."""

from __future__ import annotations

import logging

from broker.net.ports import VERSION_WITH_ENTRY_METADATA, Connection
from protocol import answers
from protocol.errors import ProtocolError
from protocol.pulsar_api_pb2 import AuthenticationError, BaseCommand

log = logging.getLogger("magnetar.net")


def connect(cnx: Connection, command: BaseCommand) -> None:
    """Without authentication every method and every role is welcome, as in Pulsar."""
    if cnx.connected:
        raise ProtocolError("a second CONNECT")
    request = command.connect
    cnx.connected = True
    cnx.client_version = request.client_version
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
    cnx.send(answers.PONG)


def pong(cnx: Connection, command: BaseCommand) -> None:
    """That bytes arrived is all there is to know."""


def auth_response(cnx: Connection, command: BaseCommand) -> None:
    cnx.send(answers.error(answers.NO_REQUEST_ID, AuthenticationError, "Failed to authenticate"))
