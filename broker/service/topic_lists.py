"""What clients ask of a namespace's list of topics: those that fit a pattern, and whether they know the list already."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crc32c import crc32c

from broker.model.errors import MetadataError
from broker.model.topic_name import parse_topic_name


def compile_topics_pattern(pattern: str) -> re.Pattern[str]:
    """What a regex consumer asks for, with or without the domain. MetadataError says what is wrong with it."""
    try:
        return re.compile(pattern.partition("://")[2] if "://" in pattern else pattern)
    except re.error as error:
        raise MetadataError(f"Invalid topics pattern '{pattern}': {error}") from None


def matches(pattern: re.Pattern[str], topic: str) -> bool:
    """Whether `domain://tenant/namespace/topic` fits, partitions under their base name."""
    base = str(parse_topic_name(topic).base)
    return pattern.fullmatch(base.partition("://")[2]) is not None


def topics_hash(names: Iterable[str]) -> str:
    """CRC-32C over the sorted names joined by commas, least significant byte first, as clients compare it."""
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
