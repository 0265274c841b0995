"""A whole scrape: both parts in one text, its format, sharing, HTTP, and every name that boards ask for."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from mmap import mmap
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from broker.metrics import broker_families, exposition, offload_families
from broker.metrics.broker_reading import BrokerReading
from broker.metrics.exposition import ExpositionSettings
from broker.metrics.http import metrics_routes, takes_gzip
from broker.metrics.network import NetworkSettings
from broker.metrics.scraper import Scraper
from broker.numbers import topic_families
from broker.numbers.ended_sums import EndedSums, Walk
from broker.numbers.readings import Chosen, TopicReading
from entry_cache.cache_stats import Reason
from entry_cache.observe.curve import Curve, Point
from entry_cache.observe.expected_level import ExpectedLevel
from tests.broker.metrics.network_of import interface
from tests.broker.metrics.readings_of import reading_of, reads
from tests.broker.numbers.rows_of import subscription_of, topic_of
from tests.metrics_check import core_names, names_in

ROOT = Path(__file__).resolve().parents[3]
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class NoneEnded:
    """In a broker none of whose topics was closed."""

    def walk(self) -> AbstractContextManager[Walk]:
        return nullcontext(Walk({}))


class FakeBroker:
    def __init__(self, topics: int = 1) -> None:
        self.now_ns = 0
        self.count = topics
        self.times_read = 0
        self.reading = reading_of(topic_loads=3, topic_loads_ms=[5.0, 1.0, 3.0])
        self.levels: list[ExpectedLevel] = []
        """Seen in slices before a scrape; the last one holds."""
        manager = self.reading.manager
        manager.stats.evicted_entries |= {Reason.TTL: 2, Reason.SIZE: 3}
        manager.stats.pending_reads.overlapping["left"] = 7
        manager.policy.requeues["expected_reads"] = 4
        ages = self.reading.evictions.passes[Reason.TTL].age
        for seconds, count in ((0.2, 1), (1.5, 2), (13, 3)):
            ages.add_run(int(seconds * 1e9), int(seconds * 1e9), count)

    def broker(self) -> BrokerReading:
        return self.reading

    def count_reads(self) -> Iterator[None]:
        yield

    def count_levels(self) -> Iterator[None]:
        for level in self.levels:
            yield
            self.reading = replace(self.reading, expected=level)

    def since(self, before: Mapping[str, TopicReading]) -> Iterator[TopicReading]:
        return self.topics()

    sums = None

    def chosen(self, chosen: Chosen) -> Iterator[TopicReading]:
        return (each for each in self.topics() if each.topic in chosen.topics)

    @property
    def ended(self) -> EndedSums:
        return cast("EndedSums", NoneEnded())

    def topics(self, walk: Walk | None = None) -> Iterator[TopicReading]:
        self.times_read += 1
        for number in range(self.count):
            yield topic_of(
                "public/default",
                f"persistent://public/default/t{number}",
                messages_in=5,
                parts={"write_latency": (0, 10) + (0,) * 8},
                subscriptions=[subscription_of("s")],
            )

    def scraper(self) -> Scraper:
        settings = ExpositionSettings(cluster="standalone")
        network = NetworkSettings(folder=Path("/nonexistent"))
        return Scraper(settings, "1.2.3", self, lambda: self.now_ns, network)


async def text_of(scraper: Scraper, accept: str = "") -> str:
    scrape = await scraper.scrape(accept)
    text = b"".join(scrape.chunks)
    assert len(text) == scrape.size
    return text.decode()


async def test_scrape_has_every_core_name_of_the_dashboards() -> None:
    text = await text_of(FakeBroker().scraper())
    assert [name for name in core_names("broker") if name not in names_in(text)] == []


async def test_no_family_is_printed_twice() -> None:
    names = [family.name for family in parse_text(await text_of(FakeBroker().scraper()))]
    assert len(names) == len(set(names))


async def test_scrape_is_openmetrics_when_accept_asks_for_it() -> None:
    scraper = FakeBroker().scraper()
    assert (await scraper.scrape("")).content_type.startswith("text/plain; version=0.0.4")
    assert (await scraper.scrape(OPENMETRICS)).content_type.startswith("application/openmetrics-text")
    text = await text_of(scraper, OPENMETRICS)
    assert text.count("# EOF") == 1
    assert text.endswith("\n# EOF\n")
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]  # not typed there
    assert {"pulsar_in_messages", "pulsar_ml_cache_x_evicted", "pulsar_topics_count"} <= names


async def test_overlapping_scrapes_share_one_text() -> None:
    broker = FakeBroker(topics=500)
    scraper = broker.scraper()
    await scraper.scrape("")
    broker.times_read = 0
    first, second = await asyncio.gather(text_of(scraper), text_of(scraper, OPENMETRICS))
    assert broker.times_read == 1
    assert 'topic="persistent://public/default/t499"' in first
    assert 'topic="persistent://public/default/t499"' in second
    await scraper.scrape("")
    assert broker.times_read == 2


async def test_overlapping_scrapes_get_the_whole_text_each_at_its_own_pace() -> None:
    scraper = FakeBroker(topics=2_000).scraper()
    await scraper.scrape("")
    quick, slow = await asyncio.gather(scraper.scrape(""), scraper.scrape(""))
    first, second = [next(quick.chunks)], list[bytes]()
    for chunk in quick.chunks:
        first.append(chunk)
        second += islice(slow.chunks, len(first) % 2)
    second += slow.chunks
    assert len(first) > 5
    assert (len(b"".join(first)), len(b"".join(second))) == (quick.size, slow.size)
    for found in (first, second):
        assert (
            b"".join(found).count(
                b'pulsar_topics_count{cluster="standalone",namespace="public/default"} 2000'
            )
            == 1
        )
        assert b"".join(found).count(b"pulsar_in_messages_total{") == 2_000


async def test_text_is_freed_while_its_last_scrape_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = list[mmap]()

    def noted(*arguments: int) -> mmap:
        pieces.append(mmap(*arguments))
        return pieces[-1]

    monkeypatch.setattr(exposition, "mmap", noted)
    scraper = FakeBroker(topics=2_000).scraper()
    first, last = await asyncio.gather(scraper.scrape(""), scraper.scrape(""))
    assert b"".join(first.chunks).count(b"\n") > 100_000
    assert len(pieces) > 20
    assert not any(piece.closed for piece in pieces), "another scrape reads them"
    closed = [sum(piece.closed for piece in pieces) for _ in last.chunks]
    assert closed[-1] == len(pieces)
    assert len(set(closed)) > len(pieces) / 2, "some at a time"


async def test_cancelled_scrape_leaves_the_shared_text_to_the_others() -> None:
    scraper = FakeBroker(topics=500).scraper()
    await scraper.scrape("")
    given_up = asyncio.create_task(scraper.scrape(""))
    other = asyncio.create_task(text_of(scraper))
    await asyncio.sleep(0)
    given_up.cancel()
    assert "t499" in await other


async def test_loop_turns_between_slices_of_a_scrape() -> None:
    scraper = FakeBroker(topics=640).scraper()
    await scraper.scrape("")
    turns = 0
    task = asyncio.create_task(scraper.scrape(""))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10


async def test_scrape_prints_counts_and_windows_of_the_broker() -> None:
    broker = FakeBroker()
    scraper = broker.scraper()
    broker.now_ns = 10_000_000_000
    broker.reading = replace(broker.reading, reads=reads(hits=30))
    await scraper.roll_topics()
    await scraper.roll_broker()
    lines = (await text_of(scraper)).splitlines()
    assert 'pulsar_ml_cache_hits_rate{cluster="standalone"} 3.0' in lines
    assert 'pulsar_ml_cache_x_hits_total{cluster="standalone"} 30.0' in lines
    assert 'pulsar_ml_cache_evicted_entries_total{cluster="standalone"} 5.0' in lines
    assert 'pulsar_ml_cache_x_evicted_total{cluster="standalone",reason="size"} 3.0' in lines
    assert 'pulsar_ml_cache_x_evicted_total{cluster="standalone",reason="invalidate"} 0.0' in lines
    assert 'pulsar_ml_cache_x_requeues_total{cause="expected_reads",cluster="standalone"} 4.0' in lines
    age = "pulsar_ml_cache_x_evicted_age_seconds"
    by_bound = [
        f'{age}_bucket{{cluster="standalone",le="{bound}",reason="ttl"}}' for bound in (0.5, 2, "+Inf")
    ]
    assert [f"{bucket} {count}.0" in lines for bucket, count in zip(by_bound, (1, 3, 6), strict=True)] == [
        True
    ] * 3
    assert f'{age}_count{{cluster="standalone",reason="ttl"}} 6.0' in lines
    assert f'{age}_sum{{cluster="standalone",reason="ttl"}} 42.2' in lines
    overlap = "pulsar_ml_cache_pendingreads_matched_overlapping_miss_left_total"
    assert f'{overlap}{{cluster="standalone"}} 7.0' in lines
    assert 'pulsar_broker_publish_latency{cluster="standalone",quantile="0.5"} 0.75' in lines
    assert 'pulsar_topic_load_times{cluster="standalone",quantile="0.5"} 3.0' in lines
    assert 'pulsar_version_info{cluster="standalone",version="1.2.3"} 1.0' in lines
    topic = 'namespace="public/default",topic="persistent://public/default/t0"'
    assert f'pulsar_rate_in{{cluster="standalone",{topic}}} 0.5' in lines


async def test_quota_checks_have_the_buckets_of_pulsar() -> None:
    broker = FakeBroker()
    for seconds in (1, 5, 20, 400):
        broker.reading.quota_checks.add(seconds * 1_000_000_000)
    name = "pulsar_storage_backlog_quota_check_duration_seconds"
    lines = [line for line in (await text_of(broker.scraper())).splitlines() if line.startswith(name)]
    counts = {"5.0": 2, "10.0": 2, "30.0": 3, "60.0": 3, "300.0": 3, "+Inf": 4}
    assert lines == [
        *(f'{name}_bucket{{cluster="standalone",le="{le}"}} {count}.0' for le, count in counts.items()),
        f'{name}_count{{cluster="standalone"}} 4.0',
        f'{name}_sum{{cluster="standalone"}} 426.0',
    ]


async def test_levels_that_take_a_walk_are_counted_before_the_scrape() -> None:
    broker = FakeBroker()
    broker.levels = [ExpectedLevel(number, 10 * number) for number in (1, 2, 7)]
    assert 'pulsar_ml_cache_x_expected_bytes{cluster="standalone"} 70.0' in await text_of(broker.scraper())


async def test_windows_close_by_timer() -> None:
    broker = FakeBroker()
    scraper = broker.scraper()
    broker.now_ns = 1_000_000_000
    windows = asyncio.create_task(scraper.run_windows(0.001, 60))
    async with asyncio.timeout(60):
        while 't0"} 5.0' not in await text_of(scraper):  # noqa: ASYNC110 - a scrape is all there is to see
            await asyncio.sleep(0)
    windows.cancel()


async def test_both_paths_answer_without_a_redirect_over_http() -> None:
    app = web.Application()
    app.add_routes(metrics_routes(FakeBroker(topics=300).scraper()))
    async with TestClient(TestServer(app)) as client:
        for path in ("/metrics", "/metrics/", "/metrics?cluster=other"):
            answer = await client.get(path, allow_redirects=False)
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert "pulsar_topics_count" in names_in(await answer.text())
        answer = await client.get("/metrics", headers={"Accept": OPENMETRICS})
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert (await answer.text()).endswith("# EOF\n")


async def test_scraper_that_takes_gzip_gets_the_same_text_compressed() -> None:
    app = web.Application()
    app.add_routes(metrics_routes(FakeBroker(topics=300).scraper()))
    async with TestClient(TestServer(app), auto_decompress=False) as client:
        plain = await client.get("/metrics", headers={"Accept-Encoding": "identity"})
        packed = await client.get("/metrics", headers={"Accept-Encoding": "deflate, gzip;q=0.5"})
        text, body = await plain.read(), await packed.read()
    assert plain.headers["Content-Length"] == str(len(text))
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert len(body) < len(text) / 10
    assert [line for line in gzip.decompress(body).splitlines() if b"topic=" in line] == [
        line for line in text.splitlines() if b"topic=" in line
    ]


def test_gzip_is_taken_unless_its_weight_is_0() -> None:
    accepted = ("gzip", "br, GZIP", "gzip;q=0.1", "gzip; q=1.0", "deflate,gzip")
    refused = ("", "identity", "gzip;q=0", "gzip; q=0.000", "x-gzip-like", "*")
    assert [takes_gzip(each) for each in accepted] == [True] * len(accepted)
    assert [takes_gzip(each) for each in refused] == [False] * len(refused)


async def test_scrape_of_chosen_topics_has_their_series_alone() -> None:
    scraper = FakeBroker(topics=300).scraper()
    chosen = Chosen(topics=frozenset(("persistent://public/default/t7", "persistent://public/default/none")))
    scrape = await scraper.scrape(OPENMETRICS, chosen)
    body = b"".join(scrape.chunks)
    assert len(body) == scrape.size
    text = body.decode()
    parse_openmetrics(text)  # type: ignore[no-untyped-call]  # not typed there
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert series
    assert [line for line in series if 'topic="persistent://public/default/t7"' not in line] == []


async def test_chosen_topic_may_have_a_short_name_and_an_invalid_one_is_refused() -> None:
    app = web.Application()
    app.add_routes(metrics_routes(FakeBroker(topics=10).scraper()))
    async with TestClient(TestServer(app)) as client:
        answer = await client.get("/metrics", params={"topic": "public/default/t7"})
        text = await answer.text()
        refused = {}
        for word, name in (("topic", ""), ("topic", "default/t7"), ("namespace", "public")):
            answer = await client.get("/metrics", params={word: name})
            refused[word, name] = (answer.status, (await answer.text()).splitlines()[0])
    topics = set(re.findall('topic="([^"]+)"', text))
    assert topics == {"persistent://public/default/t7"}
    assert {status for status, _ in refused.values()} == {400}
    assert "public/any" in refused["namespace", "public"][1]


async def test_different_choices_do_not_share_a_text() -> None:
    scraper = FakeBroker(topics=300).scraper()
    await scraper.scrape("")

    async def text(*topics: str) -> str:
        chosen = Chosen(topics=frozenset(f"persistent://public/default/{topic}" for topic in topics))
        return b"".join((await scraper.scrape("", chosen)).chunks).decode()

    first, second, whole = await asyncio.gather(text("t1"), text("t2"), text_of(scraper))
    assert ("/t1" in first, "/t2" in first) == (True, False)
    assert ("/t1" in second, "/t2" in second) == (False, True)
    assert "pulsar_broker_topics_count" in whole


async def test_scrape_has_the_policy_and_the_curve_while_it_is_sampled() -> None:
    class Sampled(FakeBroker):
        def __init__(self) -> None:
            super().__init__()
            self.reading = super().broker()
            self.looks = 0

        def broker(self) -> BrokerReading:
            return self.reading

        def curve(self) -> Curve:
            self.looks += 1
            size_bytes = self.reading.manager.settings.size_bytes_max
            return Curve(
                0, 1.0, 9, 0.5, 0.0, [Point(size_bytes // 4, 0.75, 0.25, 0), Point(size_bytes, 0.5, 0.125, 0)]
            )

    sampled = Sampled()
    text = await text_of(sampled.scraper())
    assert 'pulsar_ml_cache_x_policy_info{cluster="standalone",policy="pip430"} 1.0' in text
    assert "pulsar_ml_cache_x_curve" not in text
    sampled.reading.cache.sampling = sampled
    text = await text_of(sampled.scraper())
    assert 'pulsar_ml_cache_x_curve_miss_ratio{cluster="standalone",factor="0.25"} 0.75' in text
    assert 'pulsar_ml_cache_x_curve_standard_error{cluster="standalone",factor="1"} 0.125' in text
    assert sampled.looks == 1


async def test_scrape_labels_the_process_and_counts_bundles_and_bandwidth(tmp_path: Path) -> None:
    class Owner(FakeBroker):
        def broker(self) -> BrokerReading:
            return replace(super().broker(), bundles_owned=3)

    owner = Owner()
    settings = NetworkSettings(("eth7",), 8.0, tmp_path)
    interface(tmp_path / "eth7", received=0, sent=0)
    scraper = Scraper(ExpositionSettings(cluster="c"), "1.2.3", owner, lambda: owner.now_ns, settings)
    assert "pulsar_lb_bandwidth" not in await text_of(scraper)
    interface(tmp_path / "eth7", received=500_000_000, sent=100_000_000)
    owner.now_ns += 1_000_000_000
    await scraper.roll_broker()
    text = await text_of(scraper)
    assert 'caffeine_cache_estimated_size{cache="owned-bundles",cluster="c"} 3.0' in text
    assert 'process_open_fds{cluster="c"} ' in text
    assert 'pulsar_lb_bandwidth_in_usage{cluster="c"} 50.0' in text
    assert 'pulsar_lb_bandwidth_out_usage{cluster="c"} 10.0' in text


def test_every_family_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    tables = (
        *topic_families.TOPIC,
        *topic_families.SUBSCRIPTION,
        *topic_families.QUOTAS,
        topic_families.BROKER_QUOTAS,
        *topic_families.SUBSCRIPTION_CACHE,
        topic_families.CACHE_SUBSCRIPTIONS_LEFT_OUT,
        *broker_families.HISTOGRAMS,
        *offload_families.OFFLOAD_LATENCIES,
        *topic_families.CONSUMER,
        *topic_families.PRODUCER,
        *topic_families.NAMESPACE,
        *topic_families.TOTALS,
        *broker_families.BROKER,
        *broker_families.BROKER_BY,
        *offload_families.OFFLOADS,
        *broker_families.CURVE,
        *topic_families.TRANSACTIONS,
        topic_families.TOPICS_COUNT,
        *(family for family, _ in topic_families.NAMESPACE_BUCKETS),
        *(family for family, _ in broker_families.CONSTANTS),
    )
    names = {family.name for family in tables} | {name for name, _ in broker_families.SUMMARIES}
    names |= {broker_families.QUOTA_CHECKS[0], broker_families.OWNED_BUNDLES[0]}
    # The page names the prefix of these once, above their table.
    prefix = "pulsar_ml_cache_pendingreads_"
    names |= {
        family.name.removeprefix(prefix).removesuffix("_total") for family in broker_families.JOINED_READS
    }
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_rows_of_the_documentation_have_type_and_help_of_the_tables() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    rows = {match[1]: match[0] for match in re.finditer(r"^\| `(\w+)`.*$", page, re.M)}
    tables = (
        *topic_families.TOPIC,
        *topic_families.SUBSCRIPTION,
        *topic_families.SUBSCRIPTION_CACHE,
        *topic_families.CONSUMER,
        *topic_families.PRODUCER,
        *topic_families.QUOTAS,
    )
    wrong = [
        family.name
        for family in tables
        if f"| {family.kind} |" not in rows[family.name] or family.help.rstrip(".") not in rows[family.name]
    ]
    assert wrong == []


def test_help_texts_need_no_escaping() -> None:
    for family in (
        *topic_families.TOPIC,
        *topic_families.SUBSCRIPTION,
        *topic_families.CONSUMER,
        *broker_families.BROKER,
    ):
        assert "\\" not in family.help
        assert "\n" not in family.help
