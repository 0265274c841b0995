"""Log lines on standard error: plain on a terminal, one JSON object per line otherwise.

A record's `extra` fields are kept: `log.info("topic loaded", extra={"topic": name})`.
Law of the place: the thread that logs never waits for standard error. Records pass through a bounded queue
to a writer thread; when the queue is full a record is dropped and counted, and the count is logged as
soon as there is room. The level comes from `PULSAR_LOG_LEVEL` (trace … error, off), default info.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from typing import Literal, TextIO

Format = Literal["auto", "plain", "json"]
QUEUE_RECORDS_MAX = 10_000
OFF = logging.CRITICAL + 1
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
_OWN_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def running(log_format: str = "auto", stream: TextIO | None = None) -> Iterator[None]:
    """Sends all logging to `stream` (default standard error) during the block, then writes what is left."""
    out = sys.stderr if stream is None else stream
    plain = log_format == "plain" or (log_format == "auto" and out.isatty())
    writer = logging.StreamHandler(out)
    writer.setFormatter(PlainFormatter() if plain else JsonFormatter())
    records: queue.Queue[logging.LogRecord] = queue.Queue(QUEUE_RECORDS_MAX)
    handler = BoundedQueueHandler(records)
    listener = QueueListener(records, writer)
    _leave_out_what_no_line_shows()
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


def _leave_out_what_no_line_shows() -> None:
    """The optimizations that logging's own documentation names: no stack walk, no thread and process names."""
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def level_from_environment() -> int:
    return LEVELS.get(os.environ.get("PULSAR_LOG_LEVEL", "info").strip().lower(), logging.INFO)


class BoundedQueueHandler(QueueHandler):
    """Puts records on the queue without ever waiting."""

    def __init__(self, records: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(records)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Fixes the text now, while its arguments are as they were; the traceback stays a field.

        In place: this is the only handler, so nobody else sees the record.
        """
        record.msg = record.getMessage()
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            if self.dropped:
                self.queue.put_nowait(self._dropped_notice(self.dropped))
                self.dropped = 0
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1

    @staticmethod
    def _dropped_notice(count: int) -> logging.LogRecord:
        text = f"{count} log records were dropped: standard error does not keep up"
        return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


class PlainFormatter(logging.Formatter):
    """`2026-11-21T17:48:48,802+0000 INFO  logger - message key=value`, Pulsar's order of things."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        when = f"{at:%Y-%m-%dT%H:%M:%S},{at.microsecond // 1000:03d}+0000"
        line = f"{when} {record.levelname:<5} {record.name} - {record.getMessage()}"
        for key, value in fields(record).items():
            line += f" {key}={value}"
        trace = _traceback(record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object: time, level, logger, message, the record's own fields, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
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
    """What the caller passed as `extra`."""
    return {key: value for key, value in vars(record).items() if key not in _OWN_FIELDS}


def _traceback(record: logging.LogRecord) -> str:
    if record.exc_text:
        return record.exc_text
    if record.exc_info:
        return logging.Formatter().formatException(record.exc_info)
    return ""
