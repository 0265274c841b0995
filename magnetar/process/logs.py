"""Writes log lines to standard error: plain on a terminal, one JSON object per line otherwise.

Invariant: the thread that logs never waits for standard error. A slow terminal or pipe would otherwise stop the event
loop. Records pass through a bounded queue to a writer thread; a record that finds the queue full is dropped and
counted, and the count is logged when the queue has space again. The level comes from `PULSAR_LOG_LEVEL` (trace … error,
off), default info. A record's `extra` fields are kept: `log.info("topic loaded", extra={"topic": name})`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import TextIO

GATHER_S = 0.02
"""The writer thread wakes up at most once in this time."""
QUEUE_RECORDS_MAX = 10_000
"""Records that may wait for the writer thread."""
LEVEL_VARIABLE = "PULSAR_LOG_LEVEL"
"""The environment variable that names the level."""
OFF = logging.CRITICAL + 1
"""A level above every record's."""
LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "off": OFF,
}
"""Values of `PULSAR_LOG_LEVEL`, Log4j's names; Python has no level below debug and none above critical."""
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def running(log_format: str = "auto", stream: TextIO | None = None) -> Iterator[None]:
    """Sends all logging to `stream` (default standard error) during the block, then writes the queued rest.

    `log_format` is `plain`, `json`, or `auto`: plain on a terminal, JSON otherwise.
    """
    out = sys.stderr if stream is None else stream
    plain = log_format == "plain" or (log_format == "auto" and out.isatty())
    writer = logging.StreamHandler(out)
    writer.setFormatter(PlainFormatter() if plain else JsonFormatter())
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = BoundedQueueHandler(records)
    listener = GatheringListener(records, writer)
    _skip_unused_fields()
    root = logging.getLogger()
    level_before = root.level
    root.setLevel(level_from_environment())
    root.addHandler(handler)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)
        listener.stop()


def _skip_unused_fields() -> None:
    """Turns off the stack walk and the thread and process names, which no line of ours shows.

    The documentation of `logging` names these switches under "Optimization".
    """
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def level_from_environment() -> int:
    """Returns the level that `PULSAR_LOG_LEVEL` names; info for a name that is not in LEVELS."""
    return LEVELS.get(os.environ.get(LEVEL_VARIABLE, "info").strip().lower(), logging.INFO)


class BoundedQueueHandler(QueueHandler):
    """Puts records on the queue without waiting; drops and counts them while it has `QUEUE_RECORDS_MAX`."""

    queue: SimpleQueue[logging.LogRecord]
    """Written in C: the lock of a `queue.Queue` costs the event loop more than the record."""

    def __init__(self, records: SimpleQueue[logging.LogRecord]) -> None:
        super().__init__(records)
        self.dropped = 0
        """Records dropped since the last notice of it."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Formats the text in the thread that logs, because arguments may change before it is written.

        The traceback becomes text too, but stays a field of its own, so that JSON lines can show it apart.
        """
        # In place, without the copy that the base class makes: no other handler sees the record.
        record.msg = record.getMessage()
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queues the record, in front of it a notice of those that were dropped before."""
        if self.queue.qsize() >= QUEUE_RECORDS_MAX:
            self.dropped += 1
            return
        if self.dropped:
            self.queue.put(self._dropped_notice(self.dropped))
            self.dropped = 0
        self.queue.put(record)

    @staticmethod
    def _dropped_notice(count: int) -> logging.LogRecord:
        text = (
            f"{count} log records were dropped: standard error is slower than the log; raise PULSAR_LOG_LEVEL"
        )
        return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


class GatheringListener(QueueListener):
    """Writes the records that gathered in `GATHER_S`. Each wake-up takes the interpreter's lock from the event loop."""

    queue: SimpleQueue[logging.LogRecord]
    """The records that wait."""

    def dequeue(self, block: bool) -> logging.LogRecord:
        """Returns the next record, at once while there are more."""
        waits = block and self.queue.empty()
        record = self.queue.get(block)
        if waits:
            time.sleep(GATHER_S)
        return record


class PlainFormatter(logging.Formatter):
    """Formats `2026-11-21T17:48:48,802+0000 INFO  logger - message key=value`, in the order of Pulsar's log lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line, and below it the traceback where the record has one."""
        at = datetime.fromtimestamp(record.created, UTC)
        when = f"{at:%Y-%m-%dT%H:%M:%S},{at.microsecond // 1000:03d}+0000"
        line = f"{when} {record.levelname:<5} {record.name} - {_one_line(record.getMessage())}"
        for key, value in fields(record).items():
            line += f" {key}={_plain(value)}"
        trace = _traceback(record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """Formats a JSON object: time, level, logger, message, the record's own fields, and exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line; values that JSON does not know are written as their `str`."""
        at = datetime.fromtimestamp(record.created, UTC)
        entry: dict[str, object] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(fields(record))
        trace = _traceback(record)
        if trace:
            entry["exception"] = trace
        return json.dumps(entry, default=str, ensure_ascii=False)


def fields(record: logging.LogRecord) -> dict[str, object]:
    """Returns the fields that the caller passed as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}


def _one_line(text: str) -> str:
    """Returns the message with characters escaped that are not printable.

    Clients choose names in it: a line break in one would forge a line, and a mark of direction would reorder it.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _plain(value: object) -> str:
    """Returns a field's value; in quotes and escaped where it could be read as further fields or lines."""
    text = str(value)
    if text.isprintable() and not set(text) & set(' ="'):
        return text
    return json.dumps(text)


def _traceback(record: logging.LogRecord) -> str:
    if record.exc_text:
        return record.exc_text
    if record.exc_info:
        return logging.Formatter().formatException(record.exc_info)
    return ""
