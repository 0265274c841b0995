"""FaultScript: the faults that a test has asked for, and the decision which of them happens now.

A fault names an event (a command on a connection, or a step of the storage), the occurrence at which it begins, how
often it happens, and what happens then. Occurrences count from the moment the fault is set, over all connections. Of
several faults that wait for the same occurrence the oldest happens; all of them count it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from foundation.model.errors import BrokerError
from foundation.model.topic_name import parse_topic_name
from protocol.pulsar_api_pb2 import BaseCommand, ServerError

DROP: Final = "drop"
"""Closes the connection; the command is not handled."""
LOSE: Final = "lose"
"""Leaves the command out and goes on."""
DELAY: Final = "delay"
"""Holds the command, and everything after it in its direction, for some seconds of the machine's clock."""
REFUSE: Final = "refuse"
"""Answers with an error instead of handling the command."""
UNLOAD: Final = "unload"
"""Closes a topic, as an unload by the admin API; the command itself is handled."""
ACTIONS: Final = (DROP, LOSE, DELAY, REFUSE, UNLOAD)

STORAGE_ADD: Final = "STORAGE_ADD"
"""Storing an entry in a bookie."""
METADATA_WRITE: Final = "METADATA_WRITE"
"""A write to the metadata store."""
STORAGE_EVENTS: Final = (STORAGE_ADD, METADATA_WRITE)
FULL_DISK: Final = "FullDisk"
"""The bookie takes no entries, as one whose disk is full."""
FENCED: Final = "Fenced"
"""The ledger belongs to another broker."""
SESSION_LOST: Final = "SessionLost"
"""The metadata store cannot be reached."""
STORAGE_ERRORS: Final = {STORAGE_ADD: (FULL_DISK, FENCED), METADATA_WRITE: (SESSION_LOST,)}
"""Errors of each step of the storage."""

REFUSABLE: Final = frozenset(
    (
        "SEND",
        "LOOKUP",
        "PARTITIONED_METADATA",
        "PRODUCER",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "SEEK",
        "CLOSE_PRODUCER",
        "CLOSE_CONSUMER",
        "GET_LAST_MESSAGE_ID",
        "GET_TOPICS_OF_NAMESPACE",
    )
)
"""Commands of clients that have an answer with an error."""

DELAY_S_MAX: Final = 3600.0
OCCURRENCE_MAX: Final = 1_000_000_000
FAULTS_MAX: Final = 1000
"""Faults that may be set at the same time."""


class BadFault(ValueError):
    """A fault that cannot be set; the text names the field, its value, and the values that may be given."""


@dataclass(slots=True)
class ScriptedFault:
    """One fault of a script."""

    on: str
    """Name of the event: a command of Pulsar's protocol such as `SEND`, or one of STORAGE_EVENTS."""
    do: str
    """One of ACTIONS."""
    at: int = 1
    """The occurrence at which it begins, counted from 1."""
    times: int = 1
    """Occurrences that it affects; 0 for all from `at` on."""
    seconds: float = 0.0
    """Length of a delay."""
    error: str = ""
    """The error of a refusal: a name of Pulsar's `ServerError`, or one of STORAGE_ERRORS."""
    topic: str = ""
    """Full name of the topic that an unload closes."""
    id: int = 0
    """Given by the script."""
    seen: int = field(default=0, init=False)
    """Occurrences so far."""
    fired: int = field(default=0, init=False)
    """Times that it has happened."""


def check(fault: ScriptedFault) -> None:
    """Raises BadFault for a fault that could never happen."""
    commands = BaseCommand.Type.keys()
    if fault.on not in STORAGE_EVENTS and fault.on not in commands:
        raise BadFault(
            f"on={fault.on!r}{_nearest(fault.on, (*commands, *STORAGE_EVENTS))}: give a command such as SEND, ACK or"
            f" SEND_RECEIPT, or one of {STORAGE_EVENTS}"
        )
    if fault.do not in ACTIONS:
        raise BadFault(f"do={fault.do!r}{_nearest(fault.do, ACTIONS)}: give one of {ACTIONS}")
    if not 1 <= fault.at <= OCCURRENCE_MAX:
        raise BadFault(f"at={fault.at}: give 1 to {OCCURRENCE_MAX}")
    if not 0 <= fault.times <= OCCURRENCE_MAX:
        raise BadFault(f"times={fault.times}: give 0 (always) to {OCCURRENCE_MAX}")
    if (fault.do == DELAY) != (fault.seconds != 0) or not 0 <= fault.seconds <= DELAY_S_MAX:
        raise BadFault(
            f"seconds={fault.seconds}: give up to {DELAY_S_MAX:.0f} with do=delay, and none otherwise"
        )
    if fault.on in STORAGE_EVENTS:
        if fault.do not in (DELAY, REFUSE):
            raise BadFault(f"do={fault.do!r}: {fault.on} can be delayed or refused")
        errors: tuple[str, ...] = STORAGE_ERRORS[fault.on]
    else:
        errors = tuple(ServerError.keys())
        if fault.do == REFUSE and fault.on not in REFUSABLE:
            raise BadFault(
                f"on={fault.on!r}: {fault.on} has no answer with an error; do=drop, lose or delay act on it"
            )
    if (fault.do == UNLOAD) != (fault.topic != "") or (fault.topic and not _is_full_name(fault.topic)):
        raise BadFault(
            f"topic={fault.topic!r}: give a full name (persistent://public/default/t) with do=unload, and none otherwise"
        )
    if (fault.do == REFUSE) != (fault.error != "") or (fault.error and fault.error not in errors):
        raise BadFault(
            f"error={fault.error!r}{_nearest(fault.error, errors)}: give one of {errors} with do=refuse, and none otherwise"
        )


def _nearest(given: str, known: Sequence[str]) -> str:
    """Returns a question with the name that `given` misspells; empty for a known name, or one that none resembles."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(given.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[found[0]]}?)" if found and given not in known else ""


def _is_full_name(topic: str) -> bool:
    try:
        return str(parse_topic_name(topic)) == topic
    except BrokerError:
        return False


class FaultScript:
    """All faults of one broker."""

    def __init__(self) -> None:
        """Has no fault."""
        self.faults: dict[int, ScriptedFault] = {}
        """By id, in the order in which they were set."""
        self.unload: Callable[[str], bool] = lambda _: False
        """Begins to close an open topic; False when it is not open. Set by the broker."""
        self._ids = itertools.count(1)

    def add(self, fault: ScriptedFault) -> int:
        """Sets a fault and returns its id. Raises BadFault."""
        check(fault)
        if len(self.faults) >= FAULTS_MAX:
            raise BadFault(f"{FAULTS_MAX} faults are set; remove some")
        fault.id = next(self._ids)
        self.faults[fault.id] = fault
        return fault.id

    def happens(self, event: str) -> ScriptedFault | None:
        """Counts an occurrence; returns the fault that happens at it, None for none."""
        chosen = None
        for fault in self.faults.values():
            if fault.on != event:
                continue
            fault.seen += 1
            due = fault.seen >= fault.at and (not fault.times or fault.seen < fault.at + fault.times)
            # A topic that is not open cannot be unloaded: such a fault must not say that it fired.
            if due and chosen is None and (fault.do != UNLOAD or self.unload(fault.topic)):
                chosen = fault
                fault.fired += 1
        return chosen
