"""Matches topics with patterns and hashes lists of topics (PIP-145). Pure.

A pattern comes from a client, so RE2 evaluates it: its time is linear in the name, where Python's `re` needs hours for
`(a+)+$`. Pulsar uses RE2J, which has the same syntax, and falls back to Java's own expressions; there is no fallback here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from broker.service.topics.topic_list_hash import hash_of
from foundation.loop.slices import in_slices
from foundation.model.errors import MetadataError, NotAllowed
from foundation.model.topic_name import parse_topic_name
from protocol.checksum import crc32c

if TYPE_CHECKING:
    import re2

PROGRAM_SIZE_MAX = 1000
"""Instructions of a compiled pattern. Time per name is their number times the name's length, 6 ns for each step."""
_PROGRAM_BYTES_MAX = 1 << 20
"""Memory that RE2 may use for one pattern."""
NAMES_PER_PART: Final = 500
"""Names of a list that are encoded or hashed in one piece."""
NAMES_PER_SLICE = 200
"""Names that are compared in one turn of the loop: at most 10 ms with the slowest pattern and names of 50 characters."""


class PatternNotLinear(NotAllowed):
    """The pattern is valid for Java, but RE2 cannot evaluate it in linear time."""


class TopicsPattern:
    """The compiled pattern of a regex consumer."""

    def __init__(self, pattern: str) -> None:
        """Compiles the pattern, its domain left out.

        MetadataError names the mistake in it. PatternNotLinear for look-around, back references and patterns of more
        than PROGRAM_SIZE_MAX instructions.
        """
        # Imported with the first pattern: most brokers see none.
        import re2

        text = pattern.partition("://")[2] if "://" in pattern else pattern
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            if _is_valid_for_others(text):
                raise PatternNotLinear(
                    f"Topics pattern '{pattern}' cannot be evaluated in linear time: {_text(error)}"
                ) from None
            raise MetadataError(f"Invalid topics pattern '{pattern}': {_text(error)}") from None
        if self._compiled.programsize > PROGRAM_SIZE_MAX:
            raise PatternNotLinear(
                f"Topics pattern '{pattern}' has {self._compiled.programsize} instructions;"
                f" the limit is {PROGRAM_SIZE_MAX}"
            )

    def matches(self, topic: str) -> bool:
        """Returns True when the topic fits the pattern; a partition fits by its base name."""
        # Most topics are no partitions, and parsing a name takes several times as long as the match.
        base = str(parse_topic_name(topic).base) if "-partition-" in topic else topic
        return self._compiled.fullmatch(base.partition("://")[2]) is not None

    async def choose(self, topics: Sequence[str]) -> list[str]:
        """Returns the topics that match, in their order. Other work of the loop runs between slices of names."""
        found: list[str] = []
        for start in range(0, len(topics), NAMES_PER_SLICE):
            if start:
                await asyncio.sleep(0)
            found.extend(filter(self.matches, topics[start : start + NAMES_PER_SLICE]))
        return found


def _options() -> re2.Options:
    import re2

    options = re2.Options()
    # RE2 would write each mistake of a client to the broker's stderr.
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    return options


def _is_valid_for_others(text: str) -> bool:
    """Returns True for a pattern that Python can compile; compiling it is cheap, only matching can be endless."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _text(error: re2.error) -> str:
    # The library gives its message as bytes.
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def parts_of(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the names in parts, each of which is encoded in a fraction of a millisecond."""
    for start in range(0, len(names), NAMES_PER_PART):
        yield names[start : start + NAMES_PER_PART]


async def topics_hash(names: Iterable[str], now_ns: Callable[[], int]) -> str:
    """Returns the hash of a list of topics, as clients compute it; `TopicListHash` follows a list that changes.

    It is the CRC-32C of the sorted names joined by commas, in slices by the monotonic clock.
    """
    crc, comma = 0, ""
    async for part in in_slices(parts_of(sorted(names)), now_ns):
        crc = crc32c((comma + ",".join(part)).encode(), crc)
        comma = ","
    return hash_of(crc)
