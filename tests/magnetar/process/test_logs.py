"""Log lines in both forms: extra fields, tracebacks, levels, and a full queue."""

from __future__ import annotations

import io
import json
import logging
from queue import SimpleQueue

import pytest

from magnetar.process import logs

log = logging.getLogger("tests.somewhere")


def lines(log_format: str, *, fail: bool = False) -> list[str]:
    out = io.StringIO()
    with logs.running(log_format, out):
        log.info("topic %s loaded", "t", extra={"entries": 5})
        if fail:
            try:
                raise ValueError("broken")
            except ValueError:
                log.exception("it failed")
    return out.getvalue().splitlines()


def test_json_line_has_message_level_and_own_fields() -> None:
    (line,) = lines("json")
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "INFO",
        "logger": "tests.somewhere",
        "message": "topic t loaded",
        "entries": 5,
    }


def test_json_line_keeps_a_traceback_as_a_field() -> None:
    entry = json.loads(lines("json", fail=True)[1])
    assert entry["message"] == "it failed"
    assert entry["exception"].endswith("ValueError: broken")


def test_plain_line_shows_level_logger_message_and_fields() -> None:
    (line,) = lines("plain")
    assert line.endswith("INFO  tests.somewhere - topic t loaded entries=5")


def test_plain_line_is_followed_by_its_traceback() -> None:
    assert lines("plain", fail=True)[-1] == "ValueError: broken"


def test_auto_format_is_json_when_the_stream_is_no_terminal() -> None:
    assert lines("auto")[0].startswith("{")


def test_level_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSAR_LOG_LEVEL", "warn")
    assert lines("plain") == []
    monkeypatch.setenv("PULSAR_LOG_LEVEL", "OFF")
    assert lines("plain", fail=True) == []


def test_root_handlers_are_restored_after_the_block() -> None:
    handlers = list(logging.getLogger().handlers)
    lines("plain")
    assert logging.getLogger().handlers == handlers


def test_full_queue_drops_records_and_logs_their_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "QUEUE_RECORDS_MAX", 2)
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = logs.BoundedQueueHandler(records)
    for number in range(5):
        handler.emit(logging.makeLogRecord({"msg": f"line {number}"}))
    assert [records.get_nowait().getMessage() for _ in range(2)] == ["line 0", "line 1"]
    handler.emit(logging.makeLogRecord({"msg": "line 5"}))
    said = [records.get_nowait().getMessage() for _ in range(2)]
    assert said == [
        "3 log records were dropped: standard error is slower than the log; raise PULSAR_LOG_LEVEL",
        "line 5",
    ]


def test_plain_field_cannot_forge_a_field_or_a_line() -> None:
    record = logging.makeLogRecord({"msg": "refused", "role": 'x outcome=done\n2026 "', "peer": "1.2.3.4:5"})
    line = logs.PlainFormatter().format(record)
    assert line.endswith('refused role="x outcome=done\\n2026 \\"" peer=1.2.3.4:5')


def test_plain_message_is_one_line_whatever_name_it_shows() -> None:
    name = "t\n2026-11-23T00:00:00,000+0000 INFO  magnetar - forged\u202e"
    record = logging.LogRecord("magnetar", logging.INFO, "f", 1, "+ %s läuft", (name,), None)
    line = logs.PlainFormatter().format(record)
    assert "\n" not in line
    assert "\u202e" not in line
    assert line.endswith(r"+ t\n2026-11-23T00:00:00,000+0000 INFO  magnetar - forged\u202e läuft")


def test_auto_format_is_plain_on_a_terminal_and_json_is_only_on_request() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for log_format, plain in (("auto", True), ("json", False)):
        out = Terminal()
        with logs.running(log_format, out):
            log.info("topic loaded")
        assert (" - topic loaded" in out.getvalue()) is plain


class ComesLate(SimpleQueue[logging.LogRecord]):
    """Empty when it is first asked; then a record is there."""

    def __init__(self, record: logging.LogRecord) -> None:
        super().__init__()
        self._record: logging.LogRecord | None = record

    def empty(self) -> bool:
        was_empty = super().empty()
        if self._record is not None:
            self.put(self._record)
            self._record = None
        return was_empty


def test_writer_wakes_up_once_for_records_that_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = (log.makeRecord("n", logging.INFO, "f", 0, text, (), None) for text in "abc")
    records = ComesLate(first)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        records.put(second)
        records.put(third)

    monkeypatch.setattr("time.sleep", sleep)
    listener = logs.GatheringListener(records)
    assert [listener.dequeue(True) for _ in range(3)] == [first, second, third]
    assert waits == [logs.GATHER_S]
