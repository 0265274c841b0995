"""Reads requests and builds answers of the admin API: JSON in, JSON out, one form for errors.

The rule, Pulsar's: 200 with a body for a read, 204 without a body for a change, and `{"reason": …}` with the error's
status when it fails. `server.py` turns errors into answers. Paths are decoded once; a topic's own name may contain any
character but a slash.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from broker.admin.http.bounded_json import parse_json
from broker.service.topics.topic_lists import parts_of
from foundation.http.careful_handler import FAULTS_OF_PEERS
from foundation.loop.slices import in_slices
from foundation.model.errors import BrokerError, InvalidTopicName
from foundation.model.position import EARLIEST, LATEST, Position
from foundation.model.topic_name import TopicName, parse_topic_name
from foundation.settings.keys import INT_MAX, LONG_MAX
from foundation.value import Json

BODY_TIMEOUT_S = web.AppKey("BODY_TIMEOUT_S", float)
"""Time in which the body of a request must arrive; no limit where the key is missing."""


class BadRequest(BrokerError):
    """The body cannot be read. The one error that is answered as plain text, as Pulsar does."""

    status = 400


class BadParameter(BrokerError):
    """A query parameter has a value that is not allowed."""

    status = 400


class UnsupportedMediaType(BrokerError):
    """The body is of another type than JSON, by its header."""

    status = 415


class RequestTimeout(BrokerError):
    """The body of the request arrives too slowly."""

    status = 408


class PreconditionFailed(BrokerError):
    """The request does not fit the present state, or a value in it is not allowed."""

    status = 412


class NotAcceptable(BrokerError):
    """Pulsar's status for a number of partitions below 1, and for some names that it does not know."""

    status = 406


class Conflict(BrokerError):
    """The thing to create exists, or the thing to delete is in use."""

    status = 409


class NotBuilt(BrokerError):
    """Pulsar has the feature that the value asks for, and this broker would not act on it."""

    status = 501


def answer(value: Json) -> web.Response:
    """Returns 200 with the value as JSON."""
    return web.Response(body=json.dumps(value).encode(), content_type="application/json")


async def answer_names(names: Sequence[str], now_ns: Callable[[], int]) -> web.Response:
    """Returns 200 with the names as a JSON list, encoded in slices: 100,000 names in one piece take 20 to 50 ms."""
    parts = [json.dumps(part)[1:-1].encode() async for part in in_slices(parts_of(names), now_ns)]
    return web.Response(body=b"[" + b", ".join(parts) + b"]", content_type="application/json")


def time_text(ms: float) -> str:
    """Returns a wall clock time as Pulsar shows it: `2026-11-22T21:03:24.186Z`."""
    text = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def done() -> web.Response:
    """Returns 204: the change was made."""
    return web.Response(status=204)


def empty() -> web.Response:
    """Returns 200 without a body, Pulsar's answer for a policy that is not set."""
    return web.Response()


def refused(status: int, reason: str) -> web.Response:
    """Returns an error in Pulsar's form, which clients show to their users."""
    body = json.dumps({"reason": reason}).encode()
    return web.Response(status=status, body=body, content_type="application/json")


async def bytes_of(request: web.Request) -> bytes:
    """Returns the body. RequestTimeout if it comes too slowly, BadRequest if its encoding is wrong."""
    try:
        async with asyncio.timeout(request.app.get(BODY_TIMEOUT_S)):
            return await request.read()
    except TimeoutError:
        raise RequestTimeout("The body did not arrive within httpServerIdleTimeout") from None
    except FAULTS_OF_PEERS as error:
        raise BadRequest(f"The body cannot be read: {type(error).__name__}") from None


async def body_of(request: web.Request) -> Json:
    """Returns the JSON in the body, None for an empty body.

    Raises as `bytes_of`, UnsupportedMediaType for another type or none, and BadRequest for anything that is no JSON, or
    beyond the limits of `bounded_json`.
    """
    data = await bytes_of(request)
    if not data.strip():
        return None
    check_type(request.headers.get("Content-Type"))
    try:
        value = parse_json(data)
    except ValueError as error:
        raise BadRequest(f"The body cannot be read: {error}") from None
    return value


def check_type(given: str | None) -> None:
    """Raises UnsupportedMediaType for a type other than JSON, or for none; BadRequest for a text that is no type."""
    kind = "" if given is None else given.partition(";")[0].strip().lower()
    # `+json`: tools name some bodies by a type of Pulsar's own.
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    reason = f"Content-Type {(given or '')[:100]!r} is not accepted: send application/json"
    # Pulsar refuses a text that is no type at all with 400.
    raise BadRequest(reason) if given is not None and "/" not in kind else UnsupportedMediaType(reason)


def whole_number(value: Json, name: str) -> int:
    """Returns a number in the range of Java's int. Raises BadRequest for any other value."""
    # `type(...) is`, not isinstance: in Python True is an int, in a policy it is a mistake.
    if type(value) is not int or not -INT_MAX - 1 <= value <= INT_MAX:
        raise BadRequest(
            f"{name}={json.dumps(value)[:50]}: a whole number from {-INT_MAX - 1} to {INT_MAX} is allowed"
        )
    return value


async def object_of(request: web.Request) -> dict[str, Json]:
    """Returns the JSON object in the body, {} for an empty body. Raises BadRequest for anything else."""
    value = await body_of(request)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"The body must be a JSON object, not {json.dumps(value)[:50]}")
    return value


def is_true(request: web.Request, parameter: str) -> bool:
    """Returns True if the query parameter is `true` in any case."""
    return request.query.get(parameter, "").lower() == "true"


def html_page(status: int, reason: str, headers: Mapping[str, str]) -> web.Response:
    """Returns an error as an HTML page, as Pulsar's HTTP server does for errors outside of its routes."""
    title = f"Error {status} {reason}"
    page = f"<html><head><title>{title}</title></head><body>{title}</body></html>"
    return web.Response(
        status=status, body=page.encode(), headers={"Content-Type": "text/html;charset=iso-8859-1", **headers}
    )


def namespace_of(request: web.Request) -> str:
    """Returns `tenant/namespace` from the path."""
    return f"{request.match_info['tenant']}/{request.match_info['namespace']}"


def topic_of(request: web.Request) -> TopicName:
    """Returns the topic in the path. Raises InvalidTopicName (412) when the path does not make a topic's name."""
    match = request.match_info
    try:
        return parse_topic_name(
            f"{match['domain']}://{match['tenant']}/{match['namespace']}/{match['topic']}"
        )
    except InvalidTopicName:
        # Pulsar's text, which does not name the topic.
        raise InvalidTopicName("Topic name is not valid") from None


@dataclass(frozen=True, slots=True)
class ResetData:
    """The body of a request that names a position of a subscription."""

    position: Position
    """The position; EARLIEST and LATEST are allowed."""
    excluded: bool = False
    """True for the entry after the position instead."""
    properties: dict[str, str] = field(default_factory=dict)
    """Properties of a subscription that is created."""

    @property
    def start(self) -> Position:
        """The first entry to deliver."""
        if not self.excluded or self.position in (EARLIEST, LATEST):
            return self.position
        return Position(self.position.ledger_id, self.position.entry_id + 1)


async def reset_data_of(request: web.Request, default: Position | None = None) -> ResetData:
    """Returns the position in the body: a word, or a message id whose members are 0 unless given, as in Pulsar.

    `default` stands for an empty body. Raises BadRequest for anything else.
    """
    value = await body_of(request)
    if value is None and default is not None:
        return ResetData(default)
    if isinstance(value, dict):
        position, properties = _position(value, 0), value.get("properties")
        given = properties if isinstance(properties, dict) else {}
        texts = {key: text for key, text in given.items() if isinstance(text, str)}
        if position is not None and len(texts) == len(given):
            # Jackson names the member without the "is" of its getter; Go names it with.
            excluded = value.get("excluded", value.get("isExcluded")) is True
            return ResetData(position, excluded, texts)
    return ResetData(position_of("" if value is None else value))


def position_in(value: Json) -> Position:
    """Returns the message id in a body; members that are missing are -1, as in Pulsar. Raises BadRequest."""
    if (position := _position(value, -1)) is not None:
        return position
    raise BadRequest(
        f'Not a message id: {json.dumps(value)[:100]}; {{"ledgerId": n, "entryId": n}} is allowed'
    )


def _position(value: Json, missing: int | None) -> Position | None:
    """Returns the position in a message id, whose missing members are `missing`; None for another value."""
    members = (
        [value.get(name, missing) for name in ("ledgerId", "entryId")] if isinstance(value, dict) else []
    )
    # `type(...) is`, not isinstance: in Python True is an int.
    longs = [one for one in members if type(one) is int and -LONG_MAX - 1 <= one <= LONG_MAX]
    return Position(*longs) if len(longs) == 2 else None


def message_id(position: Position, partition: int = -1) -> dict[str, Json]:
    """Returns a message id as clients read it: of a whole entry, not of one message in its batch."""
    return {
        "ledgerId": position.ledger_id,
        "entryId": position.entry_id,
        "partitionIndex": partition,
        "batchIndex": -1,
        "batchSize": 0,
    }


def position_of(value: Json) -> Position:
    """Returns the position for `"latest"`, `"earliest"`, or a message id as JSON; None means the latest.

    Raises BadRequest for anything else.
    """
    if value is None or value == "latest":
        return LATEST
    if value == "earliest":
        return EARLIEST
    if (position := _position(value, None)) is not None:
        return position
    raise BadRequest(
        f'Not a message id: {json.dumps(value)[:100]}; allowed are "latest", "earliest" and {{"ledgerId": n, "entryId": n}}'
    )


def answering(
    run: Callable[[web.Request], Awaitable[Json]], without_value: Callable[[], web.Response] = done
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Returns a handler that answers with what `run` returns, and with `without_value` where that is None."""

    async def handle(request: web.Request) -> web.Response:
        value = await run(request)
        return without_value() if value is None else answer(value)

    handle.__doc__ = run.__doc__
    return handle
