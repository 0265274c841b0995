"""The views that a broker's console has: their lines from its answers, and the answers of a real broker."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator

import pulsar
import pytest
from textual.widgets import Static

import magnetar
from foundation.value import Json
from magnetar.clients.admin_client import AdminAddress
from magnetar.clients.answer_object import AnswerObject
from magnetar.clients.client import CommandError
from magnetar.commands.top_command import VIEWS, main
from magnetar.top.bookie_view import bookies_lines
from magnetar.top.cache_view import COLUMN, cache_lines
from magnetar.top.cluster_view import cluster_lines
from magnetar.top.console import ROUTES, ConsoleAnswers, Look
from magnetar.top.hour_view import HOUR_MS, LINES, hour_lines, spark
from magnetar.top.rates import Scrapes, overview
from magnetar.top.screen import TopScreen
from magnetar.top.settings_view import settings_rows
from magnetar.top.source import TOPICS, Source
from magnetar.top.views import TEXTS, text_of
from tests.vectors.broker_process import BrokerProcess

NARROW = 77
HISTORY: dict[str, Json] = {
    "fields": ["atMs", *[line.field for line in LINES]],
    "seconds": [],
    "tens": [
        [at_ms, *(None if line.field == "hitRatio" else at_ms / 1e6 for line in LINES)]
        for at_ms in (HOUR_MS, 2 * HOUR_MS)
    ],
}
SETTINGS: list[Json] = [
    {"name": "aKey", "value": "1", "default": "1", "origin": "conf/broker.conf:1", "dynamic": False},
    {"name": "changedKey", "value": "2", "default": "1", "origin": "--set", "dynamic": True},
]
CACHE: dict[str, Json] = {
    "policy": "pip430",
    "bytes": 1024,
    "maxBytes": 2048,
    "entries": 7,
    "topics": [{"topic": f"persistent://public/default/{'long-' * 20}", "bytes": 1000, "hitRatio": None}],
    "inserted": {
        "publishedEntries": 1200,
        "publishedPerSecond": 12.0,
        "fromStorageEntries": 3,
        "fromStoragePerSecond": None,
    },
    "evicted": {"ttl": {"entries": 5, "perSecond": 2.0, "expectedEntries": 4}},
    "requeued": {"expected_reads": 9},
    "reads": {"hits": 3, "misses": 1, "coalesced": 0},
    "workingSets": [
        {"topic": "persistent://n/s/t", "subscription": "slow", "distanceBytes": 4096, "hitRatio": 0.5}
    ],
    "missRatioCurve": {
        "stopped": None,
        "reads": 1500,
        "enough": True,
        "now": {"bytes": 2048, "measured": 0.25},
        "points": [
            {"bytes": 1024, "missRatio": 0.5, "standardError": 0.01},
            {"bytes": 2048, "missRatio": 0.25, "standardError": 0.02},
        ],
    },
}


def test_hour_has_a_line_for_each_number_and_spaces_without_samples() -> None:
    lines = hour_lines(AnswerObject(HISTORY), NARROW)
    assert len(lines) == 1 + len(LINES)
    assert {len(line) for line in lines} == {NARROW}
    messages = lines[1]
    assert messages.startswith("in          ")
    assert messages.split()[1:] == ["█", "7.2/s", "7.2/s"]
    (hits,) = (line for line in lines if line.startswith("cache hits"))
    assert hits.split() == ["cache", "hits", "-", "-"]


def test_hour_of_a_new_broker_says_when_the_first_sample_comes() -> None:
    assert hour_lines(AnswerObject({**HISTORY, "tens": []}), NARROW)[1].startswith(
        "The broker has no sample yet"
    )


def test_bars_lie_at_their_time_and_are_scaled_to_the_highest() -> None:
    points = [(HOUR_MS, 9.0), (HOUR_MS * 1.3, 7.0), (HOUR_MS * 1.4, 0.0), (HOUR_MS * 2, 14.0)]
    # The first sample is an hour old and lies outside; the next two share a bar.
    assert spark(points, HOUR_MS * 2, 4, max) == " ▅ █"
    assert spark([(HOUR_MS, 0.0)], HOUR_MS, 3, max) == "  ▁"


def test_cache_tells_reasons_in_words_and_fits_a_narrow_screen() -> None:
    lines = cache_lines(AnswerObject(CACHE), NARROW)
    assert max(map(len, lines)) <= COLUMN
    rows = {" ".join(line.split()) for line in lines}
    assert rows >= {
        "policy pip430 1 KiB of 2 KiB in 7 entries",
        "reads since the start hits 3 (75.0 %) misses 1 coalesced 0",
        "its time was over 5 2/s 4",
        "it was published 1.2k 12/s",
        "it was read from storage 3 -",
        "reads of it were expected 9",
        "1 KiB misses 50.0 % ± 1.0",
        "2 KiB misses 25.0 % ± 2.0 now",
        "slow of n/s/t 4 KiB 50.0 %",
    }


def test_cache_has_two_columns_on_a_wide_screen() -> None:
    narrow, wide = cache_lines(AnswerObject(CACHE), NARROW), cache_lines(AnswerObject(CACHE), 2 * COLUMN + 4)
    assert len(wide) < len(narrow)
    assert "policy pip430" in wide[0]
    assert "another size" in wide[0]


def test_sampling_that_has_no_reads_or_stopped_is_named() -> None:
    curve = CACHE["missRatioCurve"]
    assert isinstance(curve, dict)
    young: dict[str, Json] = {**CACHE, "missRatioCurve": {**curve, "points": []}}
    assert "another size: reads are sampled since this view was opened" in cache_lines(
        AnswerObject(young), NARROW
    )
    ended: dict[str, Json] = {**CACHE, "missRatioCurve": {**curve, "stopped": {"reason": "KeyError"}}}
    assert "another size: the sampling stopped: KeyError" in cache_lines(AnswerObject(ended), NARROW)


def test_bookie_shows_its_figures_and_the_reasons_for_missing_ones() -> None:
    answer: dict[str, Json] = {
        "bookies": [
            {
                "id": "b1:3181",
                "kind": "tcp",
                "connected": True,
                "state": "readonly",
                "disks": [{"path": None, "usedBytes": 1024, "freeBytes": 2048, "writable": False}],
                "requests": {"write": {"p50Ms": 1.0, "p99Ms": 2.0}, "read": None},
                "journal": None,
                "readCache": {"hits": 1, "misses": 1, "evictedBeforeUse": None},
                "notes": ["Journal is not known. " * 8],
            }
        ],
        "more": 2,
    }
    lines = bookies_lines(AnswerObject(answer), NARROW)
    assert lines[:4] == [
        "b1:3181   tcp   READ-ONLY",
        "  used 1 KiB   free 2 KiB   READ-ONLY   all disks",
        "  read cache     hits 50.0 %   evicted before use -",
        "  from here      write 1 ms, p99 2 ms   read -",
    ]
    assert lines[-1] == "and 2 more"
    assert max(map(len, lines)) <= NARROW
    assert bookies_lines(AnswerObject({"bookies": [], "more": 0}), NARROW) == ["The broker knows no bookie."]


def test_settings_that_differ_come_first_and_long_values_lose_their_end() -> None:
    assert [row[0] for row in settings_rows(AnswerObject({"settings": SETTINGS}), "", 9)] == [
        "changedKey",
        "aKey",
    ]
    assert isinstance(SETTINGS[0], dict)
    long: Json = {**SETTINGS[0], "value": "x" * 20}
    assert settings_rows(AnswerObject({"settings": [long]}), "AKEY", 9)[0][1] == "x" * 8 + "…"
    assert settings_rows(AnswerObject({"settings": [long]}), "other", 9) == []


def test_command_screen_and_routes_have_the_same_views() -> None:
    assert {TOPICS, *TEXTS, "settings"} == {TOPICS, *ROUTES} == {*VIEWS}


CLUSTER: dict[str, Json] = {
    "isShared": True,
    "isServing": False,
    "brokers": [
        {
            "name": f"b{number}:8080",
            "isSelf": number == 1,
            "leads": False,
            "serviceUrl": f"u{number}",
            "bundleCount": 7,
            "messageRate": 82.0 * number,
            "reportAgeMs": 700_000 * number,
        }
        for number in range(2)
    ],
    "moves": [
        {
            "atMs": 1_795_456_811_163,
            "bundle": "t/n/r",
            "broker": "b0:8080",
            "kind": "taken",
            "why": "w" * 80,
        }
    ],
}


def test_cluster_has_a_line_for_each_broker_and_each_move() -> None:
    suspended, leaderless, first, second, _, _, move = cluster_lines(AnswerObject(CLUSTER))
    assert suspended.startswith("SUSPENDED")
    assert leaderless == "NO LEADER"
    assert " ".join(first.split()) == "b0:8080 bundles 7 messages 0/s (now) u0"
    assert " ".join(second.split()) == "b1:8080 bundles 7 messages 82/s (11 min ago) asked u1"
    assert move == f"23 Nov 18:00:11  t/n/r  taken     b0:8080: {'w' * 80}"
    assert text_of("cluster", AnswerObject(CLUSTER), NARROW, "")[-1] == move, "whole also for a script"
    brokers = CLUSTER["brokers"]
    assert isinstance(brokers, list)
    assert isinstance(brokers[0], dict)
    lead: Json = {**brokers[0], "leads": True}
    served = AnswerObject({**CLUSTER, "isServing": True, "brokers": [lead]})
    assert cluster_lines(served)[0].split()[-2:] == ["leads", "u0"]


@pytest.fixture(scope="module")
def broker() -> Iterator[magnetar.Broker]:
    with magnetar.Broker() as running:
        yield running


@pytest.mark.parametrize("view", sorted(ROUTES))
def test_view_of_a_real_broker_is_printed(
    broker: magnetar.Broker, capsys: pytest.CaptureFixture[str], view: str
) -> None:
    words = ["--once", "--view", view, "--admin-url", broker.admin_url]
    assert main(words) == 0
    shown = capsys.readouterr().out
    marks = {
        "hour": "1 hour ago",
        "cache": "left because",
        "bookies": "memory",
        "settings": "managedLedgerCacheSizeMB",
        "cluster": "its metadata store is its own",
    }
    assert marks[view] in shown
    assert main([*words, "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.one_broker("asks for the bookie inside the process")
def test_embedded_bookie_has_a_line_of_figures(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("disk")) as running:
        client = pulsar.Client(running.addresses.pulsar)
        client.create_producer("t").send(b"x")
        client.close()
        assert main(["--once", "--interval", "0.1", "--admin-url", running.addresses.admin]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bookie ")]
    assert line.split()[1:3] == ["writable", "free"]
    assert "journal" in line


async def test_screen_says_that_the_broker_is_away_and_shows_it_again() -> None:
    with magnetar.Broker() as own:
        source = Source(AdminAddress(own.admin_url))
        app = TopScreen(source.read, 0.1, "rate", "", "cache")
        async with app.run_test(size=(80, 24)) as pilot:
            away, text = app.query_one("#away", Static), app.query_one("#text", Static)
            while "left because" not in str(text.render()):
                await pilot.pause(0.02)
            own.kill()
            while not away.display:
                await pilot.pause(0.02)
            assert "no broker answers" in str(away.render())
            assert "left because" in str(text.render())
            own.start()
            while away.display:
                await pilot.pause(0.02)


@pytest.mark.parametrize("fails", [False, True])
async def test_reading_that_arrives_while_the_screen_closes_is_not_drawn(fails: bool) -> None:
    with magnetar.Broker() as own:
        read, began, goes_on = Source(AdminAddress(own.admin_url)).read, threading.Event(), threading.Event()

        def held(topic: str, view: str) -> Scrapes:
            reading = read(topic, view)
            began.set()
            goes_on.wait()
            if fails:
                raise CommandError("no broker answers")
            return reading

        class Closing(TopScreen):
            async def _close_all(self) -> None:
                await super()._close_all()
                # All widgets are gone, and the program has not ended.
                goes_on.set()
                await self.workers.wait_for_complete()

        async with Closing(held, 60, "rate", "", TOPICS).run_test():
            await asyncio.to_thread(began.wait)


def test_answer_is_good_for_some_seconds(broker: magnetar.Broker) -> None:
    console = ConsoleAnswers(AdminAddress(broker.admin_url))
    first = console.look("settings").answer
    assert first is not None
    assert console.look("settings").answer is first


async def test_stream_of_the_hour_is_left_after_its_first_event(broker: magnetar.Broker) -> None:
    assert ConsoleAnswers(AdminAddress(broker.admin_url)).look("hour").answer is not None
    session = {"pages": 1}
    while session["pages"]:
        await asyncio.sleep(0.05)
        found = broker.ask("GET", "/admin/v2/magnetar/console/session")
        assert isinstance(found, dict)
        session = found


def test_publish_latency_is_that_of_the_console(broker: magnetar.Broker) -> None:
    client = pulsar.Client(broker.pulsar_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("latency")
    source = Source(AdminAddress(broker.admin_url))
    told: list[Json] = [None, None]
    latencies: list[Json] = []
    # An open page lets the broker sample each second.
    with urllib.request.urlopen(f"{broker.admin_url}/admin/v2/magnetar/console/events"):
        while None in told or told != latencies:
            producer.send(b"x")
            found = overview(None, source.read())
            shown = broker.ask("GET", "/admin/v2/magnetar/console/overview")
            assert isinstance(shown, dict)
            told = [shown.get("publishP50Ms"), shown.get("publishP99Ms")]
            latencies = [found.publish_ms.get("0.5"), found.publish_ms.get("0.99")]
    client.close()


def test_look_has_the_reason_of_a_failure() -> None:
    look = ConsoleAnswers(AdminAddress("http://127.0.0.1:1")).look("cache")
    assert look.answer is None
    assert look.error.startswith("no broker answers")


def test_pulsar_without_a_console_has_the_topics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Answered:
        text = '# TYPE x gauge\npulsar_topics_count{cluster="c"} 1\n'

    def send(_: AdminAddress, method: str, path: str) -> Answered:
        asked.append(path)
        return Answered()

    monkeypatch.setattr("magnetar.top.source.send", send)
    look = Source(AdminAddress("http://apache:8080")).read(view="cache").look
    assert look == Look(None, "Only a broker of Magnetar has this view: 1 shows the topics")
    assert asked == ["/metrics/"]
