"""Reads the value of a node: which form it has, one sentence about it, and all of it as lines. Pure: no I/O.

Values of Magnetar's and of Apache's brokers are JSON or protocol buffers; those of BookKeeper are text or
protocol buffers. The path tells what a value must be, so a value of another form is a finding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from bookkeeper.ensembles import ledger_ids, racks
from bookkeeper.metadata.start_count import STARTS_KEY
from broker.cluster.moves import MOVES
from broker.managed_ledger.records.pulsar_records import (
    FORMER,
    cursor_record,
    decode_cursor,
    ledger_list_record,
    show_ledger_list,
)
from foundation.model.errors import MetadataError
from foundation.settings.keys import MASK, MASKED
from magnetar.snapshot.node_path import describe
from protocol.bookkeeper_metadata_pb2 import BookieServiceInfoFormat
from protocol.ledger_metadata import LedgerMetadata, decode
from protocol.pulsar_metadata_pb2 import SchemaLocator
from protocol.stored_schemas_pb2 import SchemaIndex, StoredSchema

_FORMER: Final = "JSON of Magnetar up to 0.2.0"
_HEX_BYTES_MAX: Final = 4096
_HEX_LINE: Final = 32
_JSON_KINDS: Final = frozenset(
    (
        "bundle-data",
        "bundle-owner",
        "deletion",
        "local-policies",
        "namespace",
        "partition-shares",
        "partitioned-topic",
        "tenant",
        "topic-policies",
    )
)
_JSON_PATHS: Final = (
    "/admin/clusters/",
    "/admin/configuration",
    "/admin/quarantine/",
    "/admin/resourcegroups/",
    "/loadbalance/",
)
"""Paths, or beginnings of paths, whose values are JSON objects besides those of `_JSON_KINDS`."""
_COOKIES: Final = "/ledgers/cookies/"
_COOKIE: Final = re.compile(r'3\n(?s:.+)|[45]\nbookieHost: ".*"\n(\w+: ".*"\s*)*', re.ASCII)
"""BookKeeper's Cookie: the version of the form, and since version 4 a field in each line."""
_LAYOUT: Final = re.compile(r"\d+\n[\w.$]+:\d+\s*", re.ASCII)
"""BookKeeper's LedgerLayout: the version of the form, and the ledger manager with its version."""
_REGISTERED: Final = "/ledgers/available/"

AnyMessage = TypeVar("AnyMessage", bound=Message)
Parsed = object
"""A parsed JSON value, a message, or an object of ours."""


class ReadValue(NamedTuple):
    """The value of a node, read."""

    form: str
    """Its form in words."""
    parsed: Parsed
    """The value as an object; None for text and for bytes of no known form."""
    lines: Callable[[], list[str]]
    """Returns all of it as lines; made when they are shown, for a verification shows none."""
    sentence: str = ""
    """The gist, for values whose fields say little by themselves; may be empty."""


def read_value(path: str, value: bytes) -> ReadValue:
    """Reads the value of the node at a path. ValueError with a sentence for one that is not of the form it must have."""
    if not value:
        return ReadValue("empty", None, list)
    try:
        return _reader(path)(value)
    except (MetadataError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the value cannot be read: {error or type(error).__name__}") from error


def hex_lines(value: bytes) -> list[str]:
    """Returns bytes as hexadecimal numbers, the first `_HEX_BYTES_MAX` of them."""
    shown = value[:_HEX_BYTES_MAX]
    lines = [shown[at : at + _HEX_LINE].hex(" ", -4) for at in range(0, len(shown), _HEX_LINE)]
    return [*lines, f"… and {len(value) - len(shown):,} more bytes"] if len(shown) < len(value) else lines


def _reader(path: str) -> Callable[[bytes], ReadValue]:
    kind = describe(path).kind
    reader = _READERS.get(kind) or _READERS_BY_PATH.get(path)
    if reader is not None:
        return reader
    if path.startswith(_REGISTERED) and not path.endswith("/readonly"):
        return partial(_message, BookieServiceInfoFormat, "BookKeeper's BookieServiceInfo")
    if path.startswith(_COOKIES):
        return partial(_text, _COOKIE, "BookKeeper's Cookie")
    if path.startswith(f"{MOVES}/"):
        return _moves
    return _object if kind in _JSON_KINDS or path.startswith(_JSON_PATHS) else _unknown


def _json(value: bytes) -> ReadValue:
    parsed = json.loads(value)
    return ReadValue("JSON", parsed, lambda: _json_lines(parsed))


def _object(value: bytes) -> ReadValue:
    found = _json(value)
    if not isinstance(found.parsed, dict):
        raise ValueError("no JSON object")
    return found


def _moves(value: bytes) -> ReadValue:
    found = _json(value)
    if not isinstance(found.parsed, list):
        raise ValueError("no JSON list")
    return found


def _racks(value: bytes) -> ReadValue:
    racks.parse_racks(value)
    return _json(value)


def _count(value: bytes) -> ReadValue:
    # `int` alone accepts signs, blanks and underscores too.
    if not value.isdigit():
        raise ValueError("no decimal number")
    return ReadValue("a number", int(value), value.decode().splitlines)


def _text(form: re.Pattern[str], name: str, value: bytes) -> ReadValue:
    text = value.decode()
    if form.fullmatch(text) is None:
        raise ValueError(f"not of the form of {name}")
    return ReadValue(name, None, text.splitlines)


def _json_lines(parsed: object) -> list[str]:
    return json.dumps(_masked(parsed), indent=2, ensure_ascii=False).splitlines()


def _masked(value: object) -> object:
    """Hides secrets, such as credentials in a cluster's data."""
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if not isinstance(value, dict):
        return value
    secret = {key for key in value if key in MASKED or "password" in str(key).lower()}
    return {key: MASK if key in secret and one else _masked(one) for key, one in value.items()}


def _message(kind: type[AnyMessage], form: str, value: bytes) -> ReadValue:
    message = kind()
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise ValueError(f"{form}: {error}") from error
    if not message.IsInitialized():
        raise ValueError(f"{form} lacks a required field")
    return ReadValue(form, message, partial(_fields, message))


def _fields(message: Message) -> list[str]:
    text: str = text_format.MessageToString(message, print_unknown_fields=True)
    return text.splitlines()


def _list(value: bytes) -> ReadValue:
    shown = show_ledger_list(value)
    info = shown.info
    sentence = _log_sentence(
        len(info.ledgers),
        sum(one.entries for one in info.ledgers),
        sum(one.size_bytes for one in info.ledgers),
        last_open=bool(info.ledgers) and info.ledgers[-1].closed_at_ms is None,
    )
    if info.deleted:
        sentence += "; its deletion is decided"
    if value.startswith(FORMER):
        return _json(value)._replace(form=_FORMER, parsed=shown, sentence=sentence)
    lines = partial(_fields, ledger_list_record(value))
    return ReadValue("Pulsar's ManagedLedgerInfo", shown, lines, sentence)


def _log_sentence(ledgers: int, entries: int, size: int, *, last_open: bool) -> str:
    text = f"{ledgers:,} ledgers with {entries:,} entries and {size:,} bytes"
    return f"{text}, without those of the last ledger, which is open" if last_open else text


def _cursor(value: bytes) -> ReadValue:
    stored = decode_cursor(value)
    mark = stored.info.mark_delete
    after = sum(bits.bit_count() for _, _, bits in stored.info.acked)
    if stored.ledger_id >= 0:
        sentence = f"the position is the last entry of ledger {stored.ledger_id}"
    else:
        sentence = f"all up to {mark.ledger_id}:{mark.entry_id} is acknowledged"
        sentence += f", and {after:,} entries after it" if after else ""
    if value.startswith(FORMER):
        return _json(value)._replace(form=_FORMER, parsed=stored, sentence=sentence)
    lines = partial(_fields, cursor_record(value))
    return ReadValue("Pulsar's ManagedCursorInfo", stored, lines, sentence)


def _ledger(value: bytes) -> ReadValue:
    metadata = decode(value)
    return ReadValue(
        "BookKeeper's LedgerMetadata", metadata, partial(_ledger_lines, metadata), _ledger_sentence(metadata)
    )


def _ledger_sentence(metadata: LedgerMetadata) -> str:
    state = metadata.state.name.lower().replace("_", " ")
    if state != "closed":
        return f"{state}: its end is in the bookies"
    return f"closed with {metadata.last_entry_id + 1:,} entries and {metadata.length:,} bytes"


def _ledger_lines(metadata: LedgerMetadata) -> list[str]:
    quorums = f"{metadata.ensemble_size} / {metadata.write_quorum} / {metadata.ack_quorum}"
    return [
        f"state: {metadata.state.name}",
        f"last entry: {metadata.last_entry_id}",
        f"length: {metadata.length}",
        f"ensemble, write quorum, acknowledgement quorum: {quorums}",
        f"digest: {metadata.digest_type.name}",
        f"password: {len(metadata.password)} bytes",
        *([f"created: {metadata.created_ms} ms since 1970"] if metadata.created_ms is not None else []),
        *(f"from entry {one.first_entry_id} on: {', '.join(one.members)}" for one in metadata.segments),
        *(
            f"custom {name}: {text.decode(errors='backslashreplace')}"
            for name, text in metadata.custom.items()
        ),
    ]


def _partitioned(value: bytes) -> ReadValue:
    found = _object(value)
    stored = found.parsed
    assert isinstance(stored, dict)
    if stored.get("moved"):
        return found._replace(sentence="moved to Pulsar's path; the next start of a broker removes it")
    count = stored["partitions"]
    # `type`, because true and false are ints too.
    if type(count) is not int or count < 0:
        raise ValueError(f"{count!r} is no number of partitions")
    text = f"{count:,} partitions"
    return found._replace(sentence=f"{text}; its deletion is decided" if stored.get("deleted") else text)


def _unknown(value: bytes) -> ReadValue:
    if value[:1] in (b"{", b"["):
        try:
            return _json(value)
        except ValueError:
            pass
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(char.isprintable() or char in "\n\t" for char in text):
        return ReadValue("text", None, text.splitlines)
    return ReadValue("bytes of a form that is not known here", None, partial(hex_lines, value))


_READERS: Final[dict[str, Callable[[bytes], ReadValue]]] = {
    "managed-ledger": _list,
    "cursor": _cursor,
    "ledger": _ledger,
    "partitioned-topic": _partitioned,
    "health": _count,
    "schema": lambda value: _message(SchemaLocator, "Pulsar's SchemaLocator", value),
    "schema-index": lambda value: _message(SchemaIndex, "Magnetar's SchemaIndex", value),
    "schema-version": lambda value: _message(StoredSchema, "Magnetar's StoredSchema", value),
}
_READERS_BY_PATH: Final[dict[str, Callable[[bytes], ReadValue]]] = {
    STARTS_KEY: _count,
    ledger_ids.KEY: _count,
    racks.KEY: _racks,
    "/ledgers/LAYOUT": partial(_text, _LAYOUT, "BookKeeper's LedgerLayout"),
}
