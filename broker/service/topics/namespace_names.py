"""The names of all topics of a namespace: those that are stored, and those that are open here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import ROOT
from broker.service.topics.topic import Topic
from foundation.loop.slices import in_slices
from foundation.model.topic_name import PERSISTENT, TopicName, parse_topic_name

NAMES_AT_ONCE: Final = 10
"""Names that count as one item of a slice: a generator costs as much as a name."""


async def names_of(
    environment: ManagedLedgerEnvironment,
    namespace: str,
    open_in: Callable[[], Sequence[Topic]],
    *,
    persistent: bool,
    non_persistent: bool,
) -> list[str]:
    """Returns full names, persistent ones first, each kind sorted; `open_in` returns the namespace's open topics."""
    stored = await _stored_names(environment, namespace) if persistent else []
    known = set(stored)
    others: list[str] = []
    async for topic in in_slices(open_in(), environment.now_ns):
        if topic.closed:
            continue
        name = str(topic.name)
        if not topic.name.is_persistent:
            if non_persistent:
                others.append(name)
        elif persistent and name not in known:
            # One that is being made may be open before it is stored.
            stored.append(name)
    # Two sorts, because plain order would put "non-persistent://" first. The stored names come nearly sorted: such a list of
    # 100,000 names takes 3 ms, and the same names from a set took 60.
    stored.sort()
    return stored + sorted(others)


async def _stored_names(environment: ManagedLedgerEnvironment, namespace: str) -> list[str]:
    locals_ = await environment.metadata.children(f"{ROOT}/{namespace}/{PERSISTENT}")
    first = f"{PERSISTENT}://{namespace}/"
    names: list[str] = []
    async for start in in_slices(range(0, len(locals_), NAMES_AT_ONCE), environment.now_ns):
        # Most names have no character that was encoded.
        names += [
            first + (TopicName.local_from_ledger_name(last) if "%" in last else last)
            for last in locals_[start : start + NAMES_AT_ONCE]
        ]
    return names


def without_system(names: Sequence[str]) -> list[str]:
    """Returns the names without those of topics that any namespace may have for brokers, as `__change_events`."""
    # Only names with this sign can be such, so that ten thousand others need no parsing.
    return [name for name in names if "/__" not in name or not parse_topic_name(name).is_system]
