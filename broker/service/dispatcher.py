"""What all dispatchers share: waking once per turn, and reading an entry's message count once.

A dispatcher is level-triggered: whatever changes its situation (new entries, permits, an acknowledgement, a finished
read, a consumer that came or left) only calls `wake`; `run_once` then looks at the whole situation and acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.model.entry import Entry
from protocol.errors import ProtocolError
from protocol.message_metadata import MessageFacts, read_facts

if TYPE_CHECKING:
    from broker.loop.turn import Turn
    from broker.managed_ledger.managed_cursor import ManagedCursor
    from broker.service.consumer import Consumer
    from broker.service.settings import ServiceSettings

READ_RETRY_MS_MIN = 100
READ_RETRY_MS_MAX = 60_000

CallLater = Callable[[float, Callable[[], None]], object]
"""(seconds, callback): the loop's call_later, or a simulation's."""


def facts_of(entry: Entry) -> MessageFacts | None:
    """The entry's metadata fields, read at the first call; None where the bytes are no message."""
    if entry.facts is None:
        try:
            entry.facts = read_facts(entry.body)
        except ProtocolError:
            return None
    return entry.facts


def messages_of(entry: Entry) -> int:
    """How many messages the entry holds; an unreadable one counts as one and goes out as it is."""
    if entry.messages == 0:
        facts = facts_of(entry)
        entry.messages = 1 if facts is None else facts.messages
    return entry.messages


def messages_left(ack_set: Iterable[int]) -> int:
    """Set bits are messages of a batch that are still to be acknowledged."""
    return sum((word & 0xFFFF_FFFF_FFFF_FFFF).bit_count() for word in ack_set)


class Dispatcher:
    """Base of the two kinds; `run_once` is theirs."""

    __slots__ = (
        "_call_later",
        "_handed_over",
        "_retry_ms",
        "_retrying",
        "_turn",
        "_woken",
        "closed",
        "consumers",
        "cursor",
        "dispatched_entries",
        "settings",
        "successor",
        "topic_name",
    )

    def __init__(
        self,
        cursor: ManagedCursor,
        *,
        topic_name: str,
        settings: ServiceSettings,
        turn: Turn,
        call_later: CallLater,
        handed_over: Callable[[list[Entry]], object],
    ) -> None:
        self.cursor = cursor
        self.topic_name = topic_name
        self.settings = settings
        self.consumers: list[Consumer] = []
        self.closed = False
        self.successor: Dispatcher | None = None
        """Who serves the cursor now; it is woken in place of this one, whose reads may still be out."""
        self.dispatched_entries = 0
        self._turn = turn
        self._call_later = call_later
        self._handed_over = handed_over
        self._woken = False
        self._retry_ms = 0
        self._retrying = False

    def retire(self, successor: Dispatcher) -> None:
        """The last consumer has left and the next one brings a dispatcher of its own."""
        self.closed = True
        self.successor = successor

    def reconfigure(self, settings: ServiceSettings) -> None:
        """A limit that held entries back may be gone."""
        self.settings = settings
        self.wake()

    def wake(self) -> None:
        if self.successor is not None:
            self.successor.wake()
        elif not self._woken:
            self._woken = True
            self._turn.dispatch(self._run)

    def _run(self, now_ns: int) -> None:
        self._woken = False
        if not self.closed:
            self.run_once(now_ns)

    def run_once(self, now_ns: int) -> None:
        raise NotImplementedError

    def _read_more(self, entries_max: int) -> None:
        """Nothing is at hand: start a storage read, or notice that the topic has ended."""
        cursor = self.cursor
        if cursor.has_more():
            if not cursor.reading and not self._retrying:
                cursor.request(entries_max, self.settings.read_bytes_max, self._read_done)
        elif cursor.ledger.is_terminated and cursor.backlog == 0:
            self._announce_end()

    def _read_done(self) -> None:
        if self.cursor.last_error is None:
            self._retry_ms = 0
            self.wake()
        else:
            self._back_off()

    def _back_off(self) -> None:
        """A read has failed, or there is no memory for it now: no further read for a while, longer each time."""
        if not self._retrying:
            self._retry_ms = max(READ_RETRY_MS_MIN, min(self._retry_ms * 2, READ_RETRY_MS_MAX))
            self._retrying = True
            self._call_later(self._retry_ms / 1000, self._read_again)

    def _read_again(self) -> None:
        self._retrying = False
        self.wake()

    def _announce_end(self) -> None:
        for consumer in self.consumers:
            if not consumer.end_told:
                consumer.end_told = True
                consumer.port.reached_end_of_topic()

    def acknowledged(self) -> None:
        """After acknowledgements: the end of a terminated topic may have been reached."""
        if self.cursor.ledger.is_terminated and self.cursor.backlog == 0:
            self._announce_end()
