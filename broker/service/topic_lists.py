"""Matches topics with patterns and hashes lists of topics (PIP-145). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crc32c import crc32c

from broker.model.errors import MetadataError
from broker.model.topic_name import parse_topic_name


def compile_topics_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles the pattern of a regex consumer, its domain left out. MetadataError names the mistake in it."""
    try:
        return re.compile(pattern.partition("://")[2] if "://" in pattern else pattern)
    except re.error as error:
        raise MetadataError(f"Invalid topics pattern '{pattern}': {error}") from None


def matches(pattern: re.Pattern[str], topic: str) -> bool:
    """Returns True when the topic fits the pattern; a partition fits by its base name."""
    base = str(parse_topic_name(topic).base)
    return pattern.fullmatch(base.partition("://")[2]) is not None


def topics_hash(names: Iterable[str]) -> str:
    """Returns the hash of a list of topics, as clients compute it.

    It is the CRC-32C of the sorted names joined by commas, as hex, least significant byte first.

    Clients compare it with their own; another byte order would make every client fetch the list again.
    """
    return crc32c(",".join(sorted(names)).encode()).to_bytes(4, "little").hex()
