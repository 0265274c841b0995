"""How the admin interface reads requests and answers them: JSON in, JSON out, one shape for what went wrong.

200 with a body for what was asked for, 204 without one for what was done, `{"reason": …}` with the error's
status otherwise. Paths are decoded once; a topic's own name may hold any character but a slash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from broker.model.errors import BrokerError, InvalidTopicName
from broker.model.position import EARLIEST, LATEST, Position
from broker.model.topic_name import TopicName, parse_topic_name
from broker.service.namespaces import Json


class BadRequest(BrokerError):
    """The body cannot be read; the one error that is answered as plain text, as Pulsar does."""

    status = 400


class PreconditionFailed(BrokerError):
    status = 412


class NotAcceptable(BrokerError):
    status = 406


class Conflict(BrokerError):
    status = 409


def answer(value: Json) -> web.Response:
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


def done() -> web.Response:
    return web.Response(status=204)


def empty() -> web.Response:
    """200 without a body: a policy that is not set."""
    return web.Response()


def refused(status: int, reason: str) -> web.Response:
    body = json.dumps({"reason": reason}).encode()
    return web.Response(status=status, body=body, content_type="application/json")


async def body_of(request: web.Request) -> Json:
    """The JSON in the body, None when there is none. BadRequest for anything else."""
    data = await request.read()
    if not data.strip():
        return None
    try:
        value: Json = json.loads(data)
    except ValueError as error:
        raise BadRequest(f"The body is not JSON: {error}") from None
    return value


async def object_of(request: web.Request) -> dict[str, Json]:
    """The same for a body that must be an object; {} when there is none."""
    value = await body_of(request)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"The body must be a JSON object, not {json.dumps(value)[:50]}")
    return value


def is_true(request: web.Request, parameter: str) -> bool:
    return request.query.get(parameter, "").lower() == "true"


def namespace_of(request: web.Request) -> str:
    return f"{request.match_info['tenant']}/{request.match_info['namespace']}"


def topic_of(request: web.Request) -> TopicName:
    """InvalidTopicName (412) when the path does not make a topic's name."""
    match = request.match_info
    try:
        return parse_topic_name(
            f"{match['domain']}://{match['tenant']}/{match['namespace']}/{match['topic']}"
        )
    except InvalidTopicName:
        raise InvalidTopicName("Topic name is not valid") from None


def message_id(position: Position, partition: int = -1) -> dict[str, Json]:
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": 0,
    }


def position_of(value: Json) -> Position:
    """`"latest"`, `"earliest"`, a message id as JSON, or nothing, which means the latest."""
    if value is None or value == "latest":
        return LATEST
    if value == "earliest":
        return EARLIEST
    if isinstance(value, Mapping):
        ledger_id, entry_id = value.get("ledgerId"), value.get("entryId")
        if isinstance(ledger_id, int) and isinstance(entry_id, int):
            return Position(ledger_id, entry_id)
    raise BadRequest(f"Not a message id: {json.dumps(value)[:100]}")
