"""Interceptors of one's own: fields that installed packages add to the broker entry metadata of each entry (PIP-70).

A package names a function in the entry point group `magnetar.broker_entry_metadata`, and
`brokerEntryMetadataInterceptors` chooses it by that name. The function gets the topic and the number of messages in an
entry, and returns fields by their number in the protobuf message. Imported where such a name is set, and nowhere else.

Law: a function that fails costs its entry the fields, and never the entry.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Final, TypeAlias

from broker.config.rules import INTERCEPTORS
from foundation.loop.rare_lines import RareLines
from protocol.broker_entry_metadata import MAGIC, STAMP_BYTES_MAX, ClockClamps, EntryStamp
from protocol.varint import varint

log = logging.getLogger(__name__)

FIELD_MIN: Final = 100
"""Lower numbers are left to Pulsar, which uses 1 and 2."""
FIELD_MAX: Final = 2**29 - 1
"""The highest number of a protobuf field."""
OWN_BYTES_MAX: Final = 1024
"""Bytes of all own fields of one entry."""
_HEAD: Final = struct.Struct(">2sI")

Fields: TypeAlias = Mapping[int, int | str | bytes]
Interceptor: TypeAlias = Callable[[str, int], Fields]
"""Returns the fields of an entry from its topic's name and its number of messages; called in the event loop."""


def encode_fields(fields: Fields) -> bytes:
    """Returns the fields in protobuf's form: whole numbers from 0 on as varints, text in UTF-8. Raises ValueError."""
    found = b""
    for number, value in fields.items():
        if not FIELD_MIN <= number <= FIELD_MAX:
            raise ValueError(f"field {number}: own fields have numbers from {FIELD_MIN} to {FIELD_MAX}")
        if isinstance(value, int):
            if not 0 <= value < 2**64:
                raise ValueError(f"field {number}: {value} is no unsigned number of 64 bits")
            found += varint(number << 3) + varint(value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)
            found += varint(number << 3 | 2) + varint(len(data)) + data
    if len(found) > OWN_BYTES_MAX:
        raise ValueError(f"{len(found)} bytes; own fields have at most {OWN_BYTES_MAX}")
    return found


class OwnInterceptors:
    """The interceptors of a broker, for all of its topics."""

    def __init__(self, chosen: Sequence[tuple[str, Interceptor]], now_ns: Callable[[], int]) -> None:
        self._chosen = chosen
        self._problems = RareLines(log, now_ns)

    @classmethod
    def load(cls, names: Sequence[str], now_ns: Callable[[], int]) -> OwnInterceptors:
        """Imports the functions; raises what their modules raise."""
        known = {one.name: one for one in entry_points(group=INTERCEPTORS)}
        return cls([(name, known[name].load()) for name in names], now_ns)

    def stamp(
        self, topic: str, *, timestamp: bool, index: bool, now_ms: Callable[[], int], clamps: ClockClamps
    ) -> EntryStamp:
        """Returns the stamp of a topic that is about to open."""
        return OwnStamp(self, topic, timestamp=timestamp, index=index, now_ms=now_ms, clamps=clamps)

    def fields(self, topic: str, messages: int) -> bytes:
        """Returns the encoded fields of one entry, of all interceptors in order."""
        found = b""
        for name, intercept in self._chosen:
            try:
                more = encode_fields(intercept(topic, messages))
                if len(found) + len(more) > OWN_BYTES_MAX:
                    raise ValueError(
                        f"more than {OWN_BYTES_MAX} bytes with those of the interceptors before it"
                    )
            # Foreign code may raise anything, and the message must be stored all the same.
            except Exception as error:  # noqa: BLE001
                self._problems.warning(f"! interceptor {name} adds no fields on {topic}: {error!r}")
            else:
                found += more
        return found


class OwnStamp(EntryStamp):
    """A stamp whose blocks have own fields after those of Pulsar."""

    __slots__ = ("_own", "_topic")

    bytes_max = STAMP_BYTES_MAX + OWN_BYTES_MAX

    def __init__(
        self,
        own: OwnInterceptors,
        topic: str,
        *,
        timestamp: bool,
        index: bool,
        now_ms: Callable[[], int],
        clamps: ClockClamps,
    ) -> None:
        super().__init__(timestamp=timestamp, index=index, now_ms=now_ms, clamps=clamps)
        self._own = own
        self._topic = topic

    def stamp(self, messages: int, count: int) -> list[bytes]:
        """Returns the blocks as `EntryStamp.stamp`, with the own fields of each entry."""
        return [self._with_own(block, messages) for block in super().stamp(messages, count)]

    def _with_own(self, block: bytes, messages: int) -> bytes:
        own = self._own.fields(self._topic, messages)
        fields = block[_HEAD.size :] + own
        return _HEAD.pack(MAGIC, len(fields)) + fields if own else block
