"""A whole scrape: both halves in one text, negotiated, shared, over HTTP, with all that boards ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from broker.metrics import definitions
from broker.metrics.exposition import ExpositionSettings
from broker.metrics.http import metrics_routes
from broker.metrics.scraper import Scraper
from broker.metrics.snapshot import BrokerStats, CacheStats, Histogram, SubscriptionStats, TopicStats
from tests.metrics_check import core_names, names_in

ROOT = Path(__file__).resolve().parents[3]
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class FakeBroker:
    def __init__(self, topics: int = 1) -> None:
        self.now_ns = 0
        self.count = topics
        self.asked = 0
        self.stats = BrokerStats(
            cache=CacheStats(
                used_bytes=10,
                evictions={"ttl": 2, "size": 3},
                requeues={"expected_reads": 4},
                evicted_ages={"ttl": Histogram([0.5, 2.0], [1, 2, 3], 40.5)},
                joined_reads={"matched_overlapping_miss_left": 7},
            ),
            topic_loads=3,
            topic_loads_ms=[5.0, 1.0, 3.0],
        )

    def topics(self) -> Iterator[TopicStats]:
        self.asked += 1
        for number in range(self.count):
            yield TopicStats(
                namespace="public/default",
                topic=f"persistent://public/default/t{number}",
                msgs_in=5,
                write_latency=(0, 10) + (0,) * 8,
                subscriptions=[SubscriptionStats(name="s")],
            )

    def scraper(self) -> Scraper:
        settings = ExpositionSettings(cluster="standalone")
        return Scraper(settings, "1.2.3", self.topics, lambda: self.stats, lambda: self.now_ns)


async def text_of(scraper: Scraper, accept: str = "") -> str:
    scrape = await scraper.scrape(accept)
    text = b"".join(scrape.chunks)
    assert len(text) == scrape.size
    return text.decode()


async def test_every_core_name_of_the_dashboards_is_there() -> None:
    text = await text_of(FakeBroker().scraper())
    assert [name for name in core_names("broker") if name not in names_in(text)] == []


async def test_no_family_is_in_both_halves() -> None:
    names = [family.name for family in parse_text(await text_of(FakeBroker().scraper()))]
    assert len(names) == len(set(names))


async def test_openmetrics_for_those_who_ask_for_it() -> None:
    scraper = FakeBroker().scraper()
    assert (await scraper.scrape("")).content_type.startswith("text/plain; version=0.0.4")
    assert (await scraper.scrape(OPENMETRICS)).content_type.startswith("application/openmetrics-text")
    text = await text_of(scraper, OPENMETRICS)
    assert text.count("# EOF") == 1
    assert text.endswith("\n# EOF\n")
    names = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]  # not typed there
    assert {"pulsar_in_messages", "pulsar_ml_cache_x_evicted", "pulsar_topics_count"} <= names


async def test_scrapes_at_the_same_time_are_written_once() -> None:
    broker = FakeBroker(topics=500)
    scraper = broker.scraper()
    await scraper.scrape("")
    broker.asked = 0
    first, second = await asyncio.gather(text_of(scraper), text_of(scraper, OPENMETRICS))
    assert broker.asked == 1
    assert 'topic="persistent://public/default/t499"' in first
    assert 'topic="persistent://public/default/t499"' in second
    await scraper.scrape("")
    assert broker.asked == 2


async def test_a_scrape_that_is_given_up_does_not_take_the_others_along() -> None:
    scraper = FakeBroker(topics=500).scraper()
    await scraper.scrape("")
    given_up = asyncio.create_task(scraper.scrape(""))
    other = asyncio.create_task(text_of(scraper))
    await asyncio.sleep(0)
    given_up.cancel()
    assert "t499" in await other


async def test_the_loop_turns_between_slices() -> None:
    scraper = FakeBroker(topics=640).scraper()
    await scraper.scrape("")
    turns = 0
    task = asyncio.create_task(scraper.scrape(""))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 10


async def test_counts_and_windows_of_the_broker() -> None:
    broker = FakeBroker()
    scraper = broker.scraper()
    broker.now_ns = 10_000_000_000
    broker.stats.cache.hits = 30
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
    assert f'{age}_sum{{cluster="standalone",reason="ttl"}} 40.5' in lines
    overlap = "pulsar_ml_cache_pendingreads_matched_overlapping_miss_left_total"
    assert f'{overlap}{{cluster="standalone"}} 7.0' in lines
    assert 'pulsar_broker_publish_latency{cluster="standalone",quantile="0.5"} 0.75' in lines
    assert 'pulsar_topic_load_times{cluster="standalone",quantile="0.5"} 3.0' in lines
    assert 'pulsar_version_info{cluster="standalone",version="1.2.3"} 1.0' in lines
    topic = 'namespace="public/default",topic="persistent://public/default/t0"'
    assert f'pulsar_rate_in{{cluster="standalone",{topic}}} 0.5' in lines


async def test_levels_that_take_a_walk_are_counted_before_the_scrape() -> None:
    broker = FakeBroker()
    slices = []

    def count() -> Iterator[None]:
        for number in range(3):
            slices.append(number)
            yield
        broker.stats.cache.expected_bytes = 77

    settings = ExpositionSettings(cluster="standalone")
    scraper = Scraper(settings, "1.2.3", broker.topics, lambda: broker.stats, lambda: 0, count)
    assert 'pulsar_ml_cache_x_expected_bytes{cluster="standalone"} 77.0' in await text_of(scraper)
    assert slices == [0, 1, 2]


async def test_windows_close_by_themselves() -> None:
    broker = FakeBroker()
    scraper = broker.scraper()
    broker.now_ns = 1_000_000_000
    windows = asyncio.create_task(scraper.run_windows(0.001, 60))
    async with asyncio.timeout(10):
        while 't0"} 5.0' not in await text_of(scraper):  # noqa: ASYNC110 - a scrape is all there is to see
            await asyncio.sleep(0)
    windows.cancel()


async def test_over_http_both_paths_answer_at_once() -> None:
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


def test_every_family_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    tables = (
        *definitions.TOPIC,
        *definitions.SUBSCRIPTION,
        *definitions.SUBSCRIPTION_CACHE,
        definitions.CACHE_SUBSCRIPTIONS_LEFT_OUT,
        *definitions.HISTOGRAMS,
        *definitions.CONSUMER,
        *definitions.PRODUCER,
        *definitions.NAMESPACE,
        *definitions.TOTALS,
        *definitions.BROKER,
        *definitions.BROKER_BY,
        definitions.TOPICS_COUNT,
        *(family for family, _ in definitions.NAMESPACE_BUCKETS),
        *(family for family, _ in definitions.CONSTANTS),
    )
    names = {family.name for family in tables} | {name for name, _ in definitions.SUMMARIES}
    names |= set(definitions.JOINED_READS)
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_helps_need_no_escaping() -> None:
    for family in (*definitions.TOPIC, *definitions.SUBSCRIPTION, *definitions.CONSUMER, *definitions.BROKER):
        assert "\\" not in family.help
        assert "\n" not in family.help
