"""The workloads: each does something to a broker and returns numbers by name.

`lost`, `doubled`, `out_of_order` and `failed` are among the numbers if messages flow. `_us` are microseconds of the
broker's CPU per message, `_per_s` rates, `_ms` milliseconds, `_mib` MiB. Law: topics are new each time; broker CPU is
read before the clients start and after they end; a peer without a known process yields no CPU numbers.
"""

from __future__ import annotations

import statistics
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench import processes
from bench.clients import Client
from bench.disk import fdatasync_us
from bench.peers import Peer, StartedPeer, address_of
from bench.probe import StallProbe
from bench.worker import Job, Result

Numbers = dict[str, float]
"""Figures of one round, by name."""
LATENCY_RATE = 1000.0
"""Messages a second."""
LATENCY_WARM_SHARE = 0.1
"""Share of the first latencies that is dropped."""
DISK_WRITES = 2_000
FAN_OUT_SUBSCRIPTIONS = 10
BATCH = 10
BATCH_LARGE = 1000
CATCH_UP_SUBSCRIPTIONS = 5
SCRAPES = 5
SETTLE_TIMEOUT_S = 5.0
IDLE_BEFORE_MEMORY_S = 3.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers of messages, topics and rounds; `FULL` gives figures to keep, `QUICK` a first look."""

    unbatched: int
    """Messages of the unbatched workloads."""
    batched: int
    """Messages of the batched workloads."""
    fan_out: int
    """Messages; each is delivered ten times."""
    catch_up: int
    """Messages of the backlog."""
    latency: int
    """Messages of the latency workload."""
    steady_s: int
    """Seconds of the workloads at a fixed rate."""
    topics: int
    rounds: int


FULL = Scale(30_000, 60_000, 40_000, 200_000, 6_000, 6, 1_000, 3)
QUICK = Scale(5_000, 15_000, 8_000, 40_000, 2_000, 2, 200, 1)


Measure = Callable[[Peer, Scale], Numbers]
"""Executes one round of a workload on a started peer."""


def produce_and_consume(peer: Peer, scale: Scale, *, size: int, batch: int) -> Numbers:
    """A producer at full speed and one tailing Exclusive subscription that acks one by one."""
    count = scale.batched if batch > 1 else scale.unbatched
    topic = new_topic("flow")
    base: Job = {"kind": "", "url": peer.url, "topic": topic, "count": count}
    sent, got, numbers = flow(
        peer, {**base, "kind": "produce", "size": size, "batch": batch}, {**base, "kind": "consume"}, count
    )
    # The later of the two: a receipt may come after the delivery of its message.
    seconds = (max(sent["ended_ns"], got["ended_ns"]) - sent["started_ns"]) / 1e9
    numbers["produce_per_s"] = count / seconds_of(sent)
    numbers["flow_per_s"] = count / seconds
    numbers["messages_per_entry"] = got["done"] / max(1, got["entries"])
    return numbers | integrity(sent, got)


def steady(peer: Peer, scale: Scale, *, size: int, rate: int, connections: int, topics: int = 0) -> Numbers:
    """Sends unbatched messages at a fixed rate, in turn to `topics` topics, one for each connection where it is 0.

    The producers share `connections` connections, the consumers as many others. Numbers: CPU and the time to the receipt.
    """
    topics = topics or connections
    base: Job = {
        "kind": "",
        "url": peer.url,
        "topic": new_topic("steady"),
        "count": rate * scale.steady_s // topics,
        "topics": topics,
        "connections": connections,
        "rate": rate,
    }
    producing: Job = {**base, "kind": "produce", "size": size}
    sent, got, numbers = flow(peer, producing, {**base, "kind": "consume_steadily"}, base["count"] * topics)
    # The rate that the client kept: a machine that is too slow for it measures another workload.
    numbers["kept_per_s"] = sent["done"] / seconds_of(sent)
    return numbers | _percentiles("receipt", sent["latencies_us"]) | integrity(sent, got)


def flow(peer: Peer, producing: Job, consuming: Job, messages: int) -> tuple[Result, Result, Numbers]:
    """Executes two jobs at once; returns their results, the producer's first, and the broker's CPU for each message."""
    with Client(consuming) as consumer, Client(producing) as producer:
        meter = Meter(peer)
        consumer.go()
        producer.go()
        return producer.result(), consumer.result(), meter.per_message(messages)


def fan_out(peer: Peer, scale: Scale) -> Numbers:
    """128 B batched to ten tailing subscriptions, in two consumer processes."""
    count, topic = scale.fan_out, new_topic("fan")
    names = [f"sub-{index}" for index in range(FAN_OUT_SUBSCRIPTIONS)]
    base: Job = {"kind": "", "url": peer.url, "topic": topic, "count": count}
    reading: Job = {**base, "kind": "consume", "bulk": True}
    half = FAN_OUT_SUBSCRIPTIONS // 2
    with (
        Client({**reading, "subscriptions": names[:half]}) as first,
        Client({**reading, "subscriptions": names[half:]}) as second,
        Client({**base, "kind": "produce", "size": 128, "batch": BATCH}) as producer,
    ):
        meter = Meter(peer)
        for client in (first, second, producer):
            client.go()
        sent, got = producer.result(), [first.result(), second.result()]
        deliveries = count * FAN_OUT_SUBSCRIPTIONS
        numbers = meter.per_message(deliveries)
    ended = max(result["ended_ns"] for result in (sent, *got))
    numbers["deliveries_per_s"] = sum(result["done"] for result in got) / ((ended - sent["started_ns"]) / 1e9)
    return numbers | integrity(sent, *got)


def catch_up(peer: Peer, scale: Scale) -> Numbers:
    """A backlog of 128 B batched messages, the broker restarted, read by one, then by five subscriptions."""
    count, topic = scale.catch_up, new_topic("backlog")
    alone, together = ["alone"], [f"sub-{index}" for index in range(CATCH_UP_SUBSCRIPTIONS)]
    base: Job = {"kind": "", "url": peer.url, "topic": topic, "count": count}
    _subscribe(base, [*alone, *together])
    with Client({**base, "kind": "produce", "size": 128, "batch": BATCH}) as producer:
        producer.go()
        sent = producer.result()
    reading: Job = {**base, "kind": "consume", "bulk": True}
    numbers: Numbers = {}
    results = []
    half = CATCH_UP_SUBSCRIPTIONS // 2
    for label, groups in (("one", [alone]), ("five", [together[:half], together[half:]])):
        # The restart empties the entry cache, so the backlog comes from storage.
        peer.restart()
        settle(peer)
        meter = Meter(peer)
        got = _read_all([{**reading, "subscriptions": names} for names in groups])
        done = sum(result["done"] for result in got)
        numbers |= {f"{name}_{label}": value for name, value in meter.per_message(max(1, done)).items()}
        begun = min(result["started_ns"] for result in got)
        ended = max(result["ended_ns"] for result in got)
        numbers[f"catch_up_{label}_per_s"] = done / ((ended - begun) / 1e9)
        results += got
    return numbers | integrity(sent, *results)


def latency(peer: Peer, scale: Scale) -> Numbers:
    """1,000 messages of 1 KiB a second, unbatched: time to the receipt and to the consumer."""
    count, topic = scale.latency, new_topic("latency")
    base: Job = {"kind": "", "url": peer.url, "topic": topic, "count": count, "rate": LATENCY_RATE}
    producing: Job = {**base, "kind": "produce", "size": 1024}
    sent, got, numbers = flow(peer, producing, {**base, "kind": "consume"}, count)
    numbers |= _percentiles("receipt", sent["latencies_us"])
    numbers |= _percentiles("to_consume", got["latencies_us"])
    # In the same round, because the disk is as fast as other load lets it be.
    numbers |= _percentiles("disk", fdatasync_us(DISK_WRITES, LATENCY_RATE))
    return numbers | integrity(sent, got)


def _percentiles(name: str, values_us: list[int]) -> Numbers:
    """Leaves out the first tenth: these meet new connections and cold code in client and broker."""
    values = sorted(values_us[int(len(values_us) * LATENCY_WARM_SHARE) :])
    return {f"{name}_p{percent}_ms": at_percent(values, percent) / 1000 for percent in (50, 99)}


def many_topics(peer: Peer, scale: Scale) -> Numbers:
    """Topics with a producer and a subscription each, on a broker that has no others."""
    another = peer.fresh()
    try:
        another.start()
        settle(another)
        return _many_topics(another, scale)
    finally:
        another.close()


def _many_topics(peer: Peer, scale: Scale) -> Numbers:
    """Measures creation, scrape, and the longest wait of another connection meanwhile."""
    host, port = address_of(peer.url)
    job: Job = {"kind": "many_topics", "url": peer.url, "topic": new_topic("many"), "count": scale.topics}
    with Client(job) as client, StallProbe(host, port) as probe:
        client.go()
        client.wait_line()
        numbers: Numbers = {"stall_create_ms": probe.take_worst_ms()}
        if peer.metrics_url:
            scrapes = [_scrape(peer.metrics_url) for _ in range(SCRAPES)]
            numbers["scrape_ms"] = statistics.median(seconds for seconds, _ in scrapes) * 1000
            numbers["scrape_kib"] = scrapes[-1][1] / 1024
            numbers["stall_scrape_ms"] = probe.take_worst_ms()
        if peer.pid is not None:
            numbers["rss_mib"] = processes.memory(peer.pid).rss
        client.go()
        result = client.result()
    numbers["create_s"] = result["create_s"]
    return numbers | integrity(result, result)


def start(peer: Peer, _scale: Scale) -> Numbers:
    """A broker on empty data: from starting the process to the first message, then its memory when idle."""
    another = peer.fresh()
    if not isinstance(another, StartedPeer):
        return {}
    job: Job = {"kind": "first_message", "url": another.url, "topic": new_topic("first"), "count": 1}
    try:
        # The client process is started before, so that its imports do not count as the broker's start.
        with Client(job) as client:
            begun = time.monotonic_ns()
            another.spawn()
            another.wait_for_port()
            accepts = time.monotonic_ns()
            client.go()
            result = client.result()
        # Late imports and first timers belong to the start and not to the idle broker.
        time.sleep(IDLE_BEFORE_MEMORY_S)
        assert another.pid is not None
        cpu_before = processes.cpu_s(another.pid)
        time.sleep(1.0)
        used = processes.memory(another.pid)
        return {
            "accepts_s": (accepts - begun) / 1e9,
            "first_message_s": (result["ended_ns"] - begun) / 1e9,
            "idle_pss_mib": used.pss,
            "idle_rss_mib": used.rss,
            "idle_cpu_percent": (processes.cpu_s(another.pid) - cpu_before) * 100,
        }
    finally:
        another.close()


WORKLOADS: dict[str, Measure] = {
    "start": start,
    "1k-unbatched": partial(produce_and_consume, size=1024, batch=1),
    "1k-batched": partial(produce_and_consume, size=1024, batch=BATCH),
    "128-unbatched": partial(produce_and_consume, size=128, batch=1),
    "128-batched": partial(produce_and_consume, size=128, batch=BATCH_LARGE),
    "128-small-batches": partial(produce_and_consume, size=128, batch=BATCH),
    "1k-5000-1": partial(steady, size=1024, rate=5000, connections=1),
    "1k-1000-50": partial(steady, size=1024, rate=1000, connections=50),
    "1k-5000-50": partial(steady, size=1024, rate=5000, connections=50),
    "128-5000-50": partial(steady, size=128, rate=5000, connections=50),
    "1000-topics": partial(steady, size=1024, rate=1000, connections=10, topics=1000),
    "latency": latency,
    "fan-out": fan_out,
    "catch-up": catch_up,
    "topics": many_topics,
}
"""By name, in the order in which they are executed."""


class Meter:
    """CPU of the broker from the construction on."""

    def __init__(self, peer: Peer) -> None:
        self._pid = peer.pid
        self._before = processes.cpu_s(peer.pid) if peer.pid is not None else 0.0

    def per_message(self, messages: int) -> Numbers:
        """Returns CPU since the construction by message, and memory now; empty for an unknown process."""
        if self._pid is None:
            return {}
        return {
            "cpu_us": (processes.cpu_s(self._pid) - self._before) * 1e6 / messages,
            "rss_mib": processes.memory(self._pid).rss,
        }


def settle(peer: Peer) -> None:
    """Waits until a started broker is idle, so that its start does not count as work for messages."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while peer.pid is not None and time.monotonic() < deadline:
        before = processes.cpu_s(peer.pid)
        time.sleep(0.2)
        if processes.cpu_s(peer.pid) - before <= 0.02:
            return


def new_topic(prefix: str) -> str:
    """Returns a topic name that was never used."""
    return f"persistent://public/default/bench-{prefix}-{time.time_ns():x}"


def seconds_of(result: Result) -> float:
    """Returns the duration of a job, above 0."""
    return max((result["ended_ns"] - result["started_ns"]) / 1e9, 1e-9)


def at_percent(ordered: list[int], percent: float) -> int:
    """Returns the value at or below which `percent` of the ordered values lie; 0 without values."""
    if not ordered:
        return 0
    return ordered[min(len(ordered) - 1, max(0, round(len(ordered) * percent / 100) - 1))]


def integrity(sent: Result, *got: Result) -> Numbers:
    """Sums the verdicts of all consumers."""
    lost, doubled, out_of_order = (sum(result["verdict"][at] for result in got) for at in range(3))
    return {
        "lost": lost,
        "doubled": doubled,
        "out_of_order": out_of_order,
        "failed": sent.get("failed", 0),
    }


def _subscribe(base: Job, names: list[str]) -> None:
    """Creates the subscriptions and disconnects."""
    with Client({**base, "kind": "consume", "count": 0, "subscriptions": names}) as client:
        client.go()
        client.result()


def _read_all(jobs: list[Job]) -> list[Result]:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(job)) for job in jobs]
        for client in clients:
            client.go()
        return [client.result() for client in clients]


def _scrape(url: str) -> tuple[float, int]:
    started = time.perf_counter()
    with urllib.request.urlopen(url, timeout=30) as answer:
        size = len(answer.read())
    return time.perf_counter() - started, size
