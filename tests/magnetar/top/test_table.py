"""Order, filter, numbers and lines of `magnetar top`."""

from __future__ import annotations

import json

import pytest

from foundation.value import Json
from magnetar.commands.top_command import SORTS as SORTS_OF_THE_COMMAND
from magnetar.top.figures import BOOKIE, TOPIC, Span, figures_of
from magnetar.top.numbers import count, percent, size
from magnetar.top.rates import Named, Overview
from magnetar.top.table import SORTS, as_json, as_table, cells_of, chosen, head


def topic(name: str, **figures: float) -> Named:
    return Named(f"persistent://n/s/{name}", {**figures_of(TOPIC, Span({}, {}, 0.0)), **figures})


QUIET = topic("quiet")
BUSY = topic("busy", in_messages=10, in_bytes=20, hit_ratio=0.5)
BEHIND = topic("behind", backlog=5, storage_bytes=2048, hit_ratio=0.25)
TOPICS = [QUIET, BUSY, BEHIND]
EMBEDDED: dict[str, Json] = {
    "id": "127.0.0.1:3181",
    "kind": "embedded",
    "connected": True,
    "state": "writable",
    "disks": [{"path": "/data", "usedBytes": 1024, "freeBytes": 2048, "writable": True}],
    "requests": None,
    "journal": {"p50Ms": 0.5, "p99Ms": 3.0},
    "readCache": {"hits": 3, "misses": 1, "evictedBeforeUse": 0},
    "notes": [],
}
FOUND = Overview(
    version="0.2.0",
    seconds=2.0,
    broker={
        "in_messages": 1234,
        "in_bytes": 2048,
        "out_messages": 3,
        "out_bytes": 0,
        "backlog": 5,
        "topics_count": 3,
        "connections": 2,
        "cpu": 0.25,
        "memory_bytes": 3 << 20,
    },
    publish_ms={"0.5": 1.04, "0.99": 12.0, "1.0": 13.0},
    cache={
        "hit_ratio": 0.985,
        "hits": 98.5,
        "misses": 1.5,
        "evictions": 0,
        "used_bytes": 1024,
        "max_bytes": 2048,
    },
    bookie=None,
    bookies=[],
    topics=TOPICS,
)


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("rate", ["busy", "behind", "quiet"]),
        ("bytes", ["busy", "behind", "quiet"]),
        ("backlog", ["behind", "busy", "quiet"]),
        ("storage", ["behind", "busy", "quiet"]),
        ("misses", ["behind", "busy", "quiet"]),
    ],
)
def test_topics_are_sorted(sort: str, names: list[str]) -> None:
    assert [topic.name.rpartition("/")[2] for topic in chosen(TOPICS, sort, "")] == names


def test_command_and_table_have_the_same_orders() -> None:
    assert tuple(SORTS) == SORTS_OF_THE_COMMAND


def test_filter_and_limit_choose_topics() -> None:
    assert chosen(TOPICS, "rate", "BE") == [BEHIND]
    assert chosen(TOPICS, "rate", "", 1) == [BUSY]
    assert chosen(TOPICS, "rate", "none") == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.04, "0"),
        (0.25, "0.2"),
        (9.96, "10"),
        (17, "17"),
        (4100, "4.1k"),
        (12_000_000, "12M"),
        (3e15, "3000T"),
    ],
)
def test_counts_are_short(value: float, text: str) -> None:
    assert count(value) == text


def test_sizes_and_ratios_have_units() -> None:
    assert [size(17), size(4200), size(5 << 30)] == ["17 B", "4.1 KiB", "5 GiB"]
    assert [percent(0.98512), percent(None)] == ["98.5 %", "-"]


def test_lines_above_the_table_name_what_is_known() -> None:
    assert head(FOUND) == [
        "broker   0.2.0  topics 3  connections 2  backlog 5  cpu 0.25  memory 3 MiB",
        "traffic  in 1.2k/s 2 KiB/s  out 3/s 0 B/s  publish (1 min) p50 1 ms, p99 12 ms",
        "cache    hits 98.5 % (98/s)  misses 1.5/s  evicted 0/s  1 KiB of 2 KiB",
    ]
    counted = {
        "bookkeeper_server_ADD_ENTRY_count": 10.0,
        "bookie_WRITE_BYTES": 2048.0,
        "bookie_SERVER_STATUS": 0.0,
    }
    kept = {"bookie_journal_JOURNAL_SYNC:0.99": 1.5, "bookie_ledgers_count": 2.0}
    bookie = figures_of(BOOKIE, Span({}, counted | kept, 2.0))
    unknown = {**FOUND.broker, "cpu": None, "memory_bytes": None}
    bare = FOUND._replace(version="", broker=unknown, publish_ms={}, bookie=bookie)
    assert head(bare)[0] == "broker   version unknown  topics 3  connections 2  backlog 5"
    assert head(bare)[1].endswith("publish (1 min) -")
    assert head(bare)[3].startswith("bookie   READ-ONLY  adds 5/s 1 KiB/s")
    assert head(bare)[3].endswith("sync p99 1.5 ms  read cache -  ledgers 2")


def test_bookies_without_metrics_have_a_line_from_the_console() -> None:
    assert (
        head(FOUND._replace(bookies=[EMBEDDED]))[3]
        == "bookie   writable  free 2 KiB  journal 0.5 ms, p99 3 ms  read cache 75.0 %"
    )
    lost: dict[str, Json] = {**EMBEDDED, "connected": False}
    assert head(FOUND._replace(bookies=[EMBEDDED, lost, EMBEDDED]))[3] == (
        "bookies  3: 2 writable, 1 NOT CONNECTED"
    )


def test_names_cannot_drive_the_terminal() -> None:
    assert cells_of(TOPIC, "topic", [topic("\x1b[2J")])[1][0] == "n/s/\\x1b[2J"


def test_narrow_screen_has_the_columns_that_do_not_follow_from_others() -> None:
    assert [*cells_of(TOPIC, "topic", [], narrow=True)[0]] == [
        "topic",
        "in/s",
        "out/s",
        "backlog",
        "storage",
        "hits",
        "cons",
    ]


def test_plain_table_has_a_line_for_each_topic() -> None:
    lines = as_table(FOUND, [BUSY, BEHIND]).splitlines()
    assert lines[4].split() == " ".join(cells_of(TOPIC, "topic", [])[0]).split()
    assert lines[5].startswith("n/s/busy")
    assert [len(line) for line in lines[4:]] == [len(lines[4])] * 3


def test_json_has_everything() -> None:
    decoded = json.loads(as_json(FOUND, [BUSY]))
    assert decoded["publish_ms"]["0.99"] == 12.0
    assert decoded["cache"]["hit_ratio"] == 0.985
    assert [topic["name"] for topic in decoded["topics"]] == ["persistent://n/s/busy"]
