"""`magnetar cache`: requests and printed text; tests/interop/test_asking_why.py runs it against a broker."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from foundation.value import Json
from magnetar.clients.answer_object import AnswerObject
from magnetar.commands.cache_command import main
from magnetar.commands.cache_text import top_text, why_text


class Broker(http.server.BaseHTTPRequestHandler):
    """Answers whatever it is told to, and keeps the paths it was asked for."""

    body: ClassVar[object] = None
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        content = json.dumps(self.body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """To nobody."""


@pytest.fixture
def url() -> Iterator[str]:
    Broker.paths.clear()
    with http.server.HTTPServer(("127.0.0.1", 0), Broker) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["why", "t", "12"], "'12' is not LEDGER:ENTRY, such as 12:7"),
        (["why", "t", "12:-1"], "'12:-1' is not LEDGER:ENTRY"),
        (["why", "t", "a:b"], "'a:b' is not LEDGER:ENTRY"),
        (["why", "t"], "LEDGER:ENTRY"),
        (["top", "--sort", "name"], "invalid choice: 'name'"),
        ([], "ACTION"),
    ],
)
def test_wrong_usage_exits_with_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_error_is_one_line_when_no_broker_answers_or_the_topic_is_malformed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["top", "--admin-url", "http://127.0.0.1:1"]) == 1
    assert "no broker answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["why", "a/b", "1:2", "--admin-url", "http://127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "magnetar cache: Invalid short topic name 'a/b': expected topic or tenant/namespace/topic\n"
    )


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("orders", "persistent/public/default/orders"),
        ("shop/eu/orders", "persistent/shop/eu/orders"),
        ("non-persistent://shop/eu/a b%?", "non-persistent/shop/eu/a%20b%25%3F"),
    ],
)
def test_topic_name_is_completed_as_clients_do(url: str, typed: str, path: str) -> None:
    Broker.body = why()
    assert main(["why", typed, "12:7", "--admin-url", url]) == 0
    assert Broker.paths == [f"/admin/v2/magnetar/cache/why/{path}/12/7"]


def test_top_sends_its_options_as_parameters(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Broker.body = top()
    assert main(["top", "--sort", "misses", "-n", "3", "--admin-url", url, "--json"]) == 0
    assert Broker.paths == ["/admin/v2/magnetar/cache/top?sort=misses&limit=3"]
    assert json.loads(capsys.readouterr().out) == Broker.body


def test_answer_of_another_kind_of_server_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Broker.body = ["a", "b"]
    assert main(["top", "--admin-url", url]) == 1
    assert "name a Magnetar broker with --admin-url" in capsys.readouterr().err


def why(*events: dict[str, Json]) -> dict[str, Json]:
    return {
        "topic": "persistent://public/default/t",
        "ledgerId": 12,
        "entryId": 7,
        "conclusion": "So it is.",
        "events": list(events),
    }


def top(*topics: dict[str, Json]) -> dict[str, Json]:
    return {
        "sort": "bytes",
        "usedBytes": 3 << 20,
        "maxBytes": 4 << 20,
        "entries": 12345,
        "topicsOpen": 1,
        "topics": list(topics),
    }


def test_why_text_has_a_line_per_event_and_the_conclusion() -> None:
    many: list[Json] = ["a", "b"]
    text = why_text(
        AnswerObject(
            why(
                {"secondsAgo": 3723, "event": "miss", "cursor": "a"},
                {"secondsAgo": 62, "event": "coalesced", "cursor": "b"},
                {"secondsAgo": 61, "event": "failed", "cursor": "b"},
                {"secondsAgo": 60, "event": "not_cached", "reason": "full"},
                {
                    "secondsAgo": 9,
                    "event": "insert",
                    "firstEntryId": 5,
                    "lastEntryId": 9,
                    "expectedReads": 2,
                    "cursors": many,
                },
                {
                    "secondsAgo": 8,
                    "event": "insert",
                    "firstEntryId": 7,
                    "lastEntryId": 7,
                    "expectedReads": None,
                    "cursors": [],
                },
                {
                    "secondsAgo": 7,
                    "event": "insert",
                    "firstEntryId": 7,
                    "lastEntryId": 7,
                    "expectedReads": 0,
                    "cursors": [],
                },
                {"secondsAgo": 0.25, "event": "kept_back"},
                {"secondsAgo": 0.1, "event": "replay"},
                {"secondsAgo": 0.0001, "event": "requeue", "cause": "may_return"},
                {"secondsAgo": 0, "event": "evict", "reason": "a_new_reason", "expected": True},
            )
        )
    )
    assert text.splitlines() == [
        "persistent://public/default/t 12:7",
        "   1 h 2 min ago  read from storage for a",
        "   1 min 2 s ago  requested by b while it was being read from storage",
        "   1 min 1 s ago  the storage read for b failed",
        "       1 min ago  not cached: the cache was full, and no reader of it was known",
        "       9.0 s ago  inserted with 12:5 to 12:9, 2 reads expected: a, b",
        "       8.0 s ago  inserted, reads not counted",
        "       7.0 s ago  inserted, no reads expected",
        "      250 ms ago  not delivered, to be read again",
        "      100 ms ago  to be delivered again",
        "  under 1 ms ago  requeued: a consumer that had not acknowledged it may return",
        "  under 1 ms ago  evicted: a new reason, although reads of it were expected",
        "So it is.",
    ]


def test_top_text_is_a_table_with_a_row_per_topic() -> None:
    assert (
        top_text(AnswerObject(top())) == "3.0 MiB of 4.0 MiB in 12,345 entries, 1 topic open; first by bytes"
    )
    full: dict[str, Json] = {
        "topic": "persistent://a/b/full",
        "bytes": 3 << 20,
        "entries": 12345,
        "hits": 1000,
        "misses": 10,
        "coalesced": 5,
        "hitRatio": 1000 / 1015,
        "evictions": {"ttl": 1, "size": 20, "ledger": 2, "invalidate": 3},
    }
    idle: dict[str, Json] = {
        "topic": "persistent://a/b/idle",
        "bytes": 0,
        "entries": 0,
        "hits": 0,
        "misses": 0,
        "coalesced": 0,
        "hitRatio": None,
        "evictions": {"ttl": 0, "size": 0, "ledger": 0, "invalidate": 0},
    }
    assert top_text(AnswerObject(top(full, idle))).splitlines()[1:] == [
        "",
        "   size  entries  hit ratio   hits  misses  coalesced  evicted by time  by size  other  topic",
        "3.0 MiB   12,345     98.5 %  1,000      10          5                1       20      5  persistent://a/b/full",
        "0.0 KiB        0          -      0       0          0                0        0      0  persistent://a/b/idle",
    ]
