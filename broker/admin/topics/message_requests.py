"""Messages in the body of `POST /topics/…`: what a client asks to publish, and the entries made from it. Pure.

    {"producerName", "schemaVersion", "valueSchema", "messages": [{"payload", "key", "properties", "eventTime", …}]}

Names, defaults and the forms of payloads are those of Apache Pulsar 4.2.4. A payload is a text; the schema says how it
becomes bytes. A request with one bad message publishes nothing; Pulsar publishes an empty message in its place.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from broker.admin.http.answers import BadRequest
from broker.admin.http.bounded_json import parse_json
from broker.admin.http.fields import checked_fields
from broker.schemas.schema import Schema, SchemaType
from broker.service.policies.forms import ANY_LONG, Flag, Form, Names, Text, Texts, Whole
from foundation.settings.keys import LONG_MAX
from foundation.value import Json
from protocol.frame import message_body
from protocol.given_message import GivenMessage, describe
from protocol.pulsar_api_pb2 import MessageMetadata

_LOCAL_ALONE: Final = "__local__"
"""Pulsar's name of a cluster for a message that is not replicated."""
_MESSAGE: Final[Mapping[str, Form[Any]]] = {
    "key": Text(),
    "properties": Texts(),
    "eventTime": Whole(0, LONG_MAX, LONG_MAX),
    "sequenceId": Whole(0, LONG_MAX, LONG_MAX),
    "deliverAt": ANY_LONG,
    "deliverAfterMs": ANY_LONG,
    "disableReplication": Flag(),
    "replicationClusters": Names(),
}
_REQUEST: Final[Mapping[str, Form[Any]]] = {
    "producerName": Text(0, 1_000),
    "schemaVersion": Whole(-1, LONG_MAX, LONG_MAX),
    "keySchema": Text(),
    "valueSchema": Text(),
}
_STRING: Final = Schema(SchemaType.STRING, b"", {"__charset": "UTF-8"})
"""The schema of a request that names none, as in Pulsar."""
_SIGNED: Final = {
    SchemaType.INT8: 8,
    SchemaType.INT16: 16,
    SchemaType.INT32: 32,
    SchemaType.INT64: 64,
}
"""Bits of the whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestMessage(GivenMessage):
    """One message of a request."""

    payload: str
    """The payload as the client sent it."""
    sequence_id: int | None = None
    """Number among the producer's messages; None = the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRequest:
    """A whole request."""

    producer_name: str
    """Empty for a name of the broker's choice."""
    schema_version: int
    """A version that the topic has; below 0 = `schema` is added instead."""
    schema: Schema
    """The schema in the request, or that of texts."""
    messages: Sequence[Json]
    """In the order of the request, for `read_message`."""
    given: Mapping[str, Json]
    """The request as the client sent it."""

    def part(self, producer_name: str, places: Sequence[int]) -> Json:
        """Returns the request for the messages at these places alone, for another broker."""
        messages: Json = [self.messages[place] for place in places]
        return {**self.given, "producerName": producer_name, "messages": messages}


def read_request(body: Json) -> RestRequest:
    """Returns the request in a body. Raises BadRequest for any other form."""
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(messages, list):
        raise BadRequest('The body must be a JSON object: {"messages": [{"payload": "text"}]}')
    found = checked_fields(body, _REQUEST)
    if found.get("keySchema"):
        raise BadRequest("keySchema: keys with a schema of their own are not built; leave it out")
    return RestRequest(
        producer_name=str(found.get("producerName", "")),
        schema_version=int(str(found.get("schemaVersion", -1))),
        schema=_schema_in(str(found.get("valueSchema", ""))),
        messages=messages,
        given=body,
    )


def read_message(value: Json, now_ms: int) -> RestMessage:
    """Returns one message of a request; `now_ms` is the clock for a delay. Raises BadRequest for any other form."""
    if not isinstance(value, dict):
        raise BadRequest(f"messages: each must be a JSON object, not {json.dumps(value)[:50]}")
    payload = value.get("payload")
    # Pulsar's parser makes texts of numbers and booleans.
    if payload is None or isinstance(payload, dict | list):
        raise BadRequest("messages: each must have a payload, which is a text")
    found: dict[str, Any] = checked_fields(value, _MESSAGE)
    after_ms = found.get("deliverAfterMs", 0)
    if after_ms > LONG_MAX - now_ms:
        raise BadRequest(f"deliverAfterMs={after_ms}: at most {LONG_MAX - now_ms} is allowed")
    local_alone = found.get("disableReplication", False)
    return RestMessage(
        payload=payload if isinstance(payload, str) else json.dumps(payload),
        key=found.get("key"),
        properties=found.get("properties", {}),
        event_time_ms=found.get("eventTime", 0),
        sequence_id=found.get("sequenceId"),
        deliver_at_ms=max(0, found.get("deliverAt", 0) or (now_ms + after_ms if after_ms > 0 else 0)),
        replicate_to=(_LOCAL_ALONE,) if local_alone else tuple(found.get("replicationClusters", ())),
    )


def _schema_in(text: str) -> Schema:
    """Returns the schema that a request brings, as JSON in a text: its definition is in base64."""
    if not text:
        return _STRING
    words = 'valueSchema must be JSON in a text: {"type": "JSON", "schema": base64, "properties": {}}'
    try:
        value = parse_json(text.encode())
    except ValueError:
        raise BadRequest(words) from None
    # As a text: a list cannot be looked up.
    if not isinstance(value, dict) or str(value.get("type")) not in SchemaType.__members__:
        raise BadRequest(f"{words}; the types are {', '.join(SchemaType.__members__)}")
    definition = value.get("schema") or ""
    properties = checked_fields(value, {"properties": Texts()}).get("properties", {})
    assert isinstance(properties, dict), "a form of texts"
    try:
        data = base64.b64decode(str(definition), validate=True)
    except binascii.Error:
        raise BadRequest(words) from None
    return Schema(SchemaType[str(value["type"])], data, {name: str(one) for name, one in properties.items()})


# Payloads


def encoder_of(schema: Schema) -> Callable[[str], bytes]:
    """Returns the function that turns a payload into bytes. BadRequest for a type whose values are no texts."""
    found = _ENCODERS.get(schema.type)
    if found is None:
        names = ", ".join(kind.name for kind in _ENCODERS)
        raise BadRequest(
            f"A payload of the schema type {schema.type.name} cannot be given as a text; types that can: {names}"
        )

    def encoded(payload: str) -> bytes:
        try:
            return found(payload)
        except (ValueError, OverflowError):
            raise BadRequest(f"payload={payload[:50]!r} is no value of {schema.type.name}") from None

    return encoded


def _whole(bits: int) -> Callable[[str], bytes]:
    def encoded(payload: str) -> bytes:
        if len(payload) > 20:  # Python refuses to read thousands of digits, after a long time.
            raise ValueError
        return int(payload).to_bytes(bits // 8, "big", signed=True)

    return encoded


def _floating(form: str) -> Callable[[str], bytes]:
    def encoded(payload: str) -> bytes:
        value = float(payload)
        if math.isinf(value) and "inf" not in payload.lower():
            raise OverflowError
        return struct.pack(form, value)

    return encoded


def _boolean(payload: str) -> bytes:
    words = {"true": b"\x01", "false": b"\x00"}
    if payload.lower() not in words:
        raise ValueError
    return words[payload.lower()]


def _json(payload: str) -> bytes:
    data = payload.encode()
    # A text that a program has cut in the middle of a character is common, and readers of JSON take it.
    parse_json(data, any_text=True)
    return data


_ENCODERS: Final[Mapping[SchemaType, Callable[[str], bytes]]] = {
    SchemaType.NONE: str.encode,
    SchemaType.BYTES: str.encode,
    SchemaType.STRING: str.encode,
    SchemaType.JSON: _json,
    SchemaType.BOOLEAN: _boolean,
    **{kind: _whole(bits) for kind, bits in _SIGNED.items()},
    SchemaType.FLOAT: _floating(">f"),
    SchemaType.DOUBLE: _floating(">d"),
}


def entry_of(
    message: RestMessage,
    payload: bytes,
    producer_name: str,
    sequence_id: int,
    now_ms: int,
    schema_version: bytes,
) -> bytes:
    """Returns the body of an entry with one message."""
    metadata = MessageMetadata(
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=now_ms,
        uncompressed_size=len(payload),
        schema_version=schema_version,
    )
    describe(metadata, message)
    return message_body(metadata, payload)
