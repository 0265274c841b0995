"""A client process of the bench: `python -m bench.worker`, one job as JSON on standard input.

The worker connects and prepares, prints `ready`, waits for a line, does the job, prints one JSON result. Law: official
client only; times are `time.monotonic_ns`, which all processes of a machine share.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NotRequired, TypedDict

from bench.integrity import Checker, total

if TYPE_CHECKING:
    import pulsar

HEAD = struct.Struct(">QQ")
"""Number and time of sending (monotonic ns, 0 where latency is not asked for), in front of every body."""
CATCH_UP_BATCH = 1000
BATCH_DELAY_MS = 10
CLOSE_TIMEOUT_S = 5.0
IDLE_S = 5.0
"""Silence after which a consumer gives up."""
POLL_S = 0.05


class Job(TypedDict):
    """A job; `kind` is a key of `JOBS`."""

    kind: str
    url: str
    """Service URL."""
    topic: str
    """Full name, or the prefix for many topics."""
    count: int
    """Messages, or topics."""
    size: NotRequired[int]
    """Bytes of a body."""
    batch: NotRequired[int]
    """Messages in a batch; 1: unbatched. Fixed, so that entries are alike whatever the timing."""
    rate: NotRequired[float]
    """Messages a second; without it as fast as possible and without latencies."""
    subscriptions: NotRequired[list[str]]
    """Names; a consumer and a thread for each."""
    bulk: NotRequired[bool]
    """Consume with batch_receive and cumulative acks instead of one by one."""
    topics: NotRequired[int]
    """`TOPIC-0` and so on, `count` messages each; without it one topic, `TOPIC`."""
    connections: NotRequired[int]
    """Connections that share the topics; one without it."""


class Result(TypedDict, total=False):
    """Numbers of one job; times are monotonic ns."""

    started_ns: int
    ended_ns: int
    done: int
    """Messages with a receipt, or delivered once."""
    failed: int
    """Messages without a receipt."""
    entries: int
    """Different entries delivered to the first subscription."""
    latencies_us: list[int]
    """In order of arrival; empty without a rate."""
    verdict: list[int]
    """Fields of `integrity.Verdict`."""
    create_s: float
    """Seconds to create all topics."""


def produce(client: pulsar.Client, job: Job, ready: Callable[[], None]) -> Result:
    """Sends `count` numbered messages to each topic in turn, without a pause or at `rate`; ends with the last receipt."""
    clients = clients_of(client, job)
    producers = [
        clients[number % len(clients)].create_producer(
            topic,
            batching_enabled=job.get("batch", 1) > 1,
            batching_max_messages=max(2, job.get("batch", 1)),
            batching_max_publish_delay_ms=BATCH_DELAY_MS,
            block_if_queue_full=True,
        )
        for number, topic in enumerate(topics_of(job))
    ]
    filler = b"x" * (job.get("size", 128) - HEAD.size)
    timed = bool(job.get("rate"))
    receipts = Receipts()
    ready()
    started = time.monotonic_ns()
    for number, now in _paced(job["count"] * len(producers), job.get("rate", 0.0)):
        of_topic, topic = divmod(number, len(producers))
        body = HEAD.pack(of_topic, now) + filler
        producers[topic].send_async(body, partial(receipts.timed, now) if timed else receipts.counted)
    for producer in producers:
        producer.flush()
    ended = time.monotonic_ns()
    _close(clients[1:])
    return {
        "started_ns": started,
        "ended_ns": ended,
        "done": receipts.done,
        "failed": receipts.failed,
        "latencies_us": receipts.latencies_us,
    }


def clients_of(client: pulsar.Client, job: Job) -> list[pulsar.Client]:
    """Returns a client for each of the job's connections, `client` among them."""
    return [client, *(connect(job) for _ in range(job.get("connections", 1) - 1))]


def topics_of(job: Job) -> list[str]:
    """Returns the names of the job's topics."""
    topic = job["topic"]
    return [f"{topic}-{number}" for number in range(job["topics"])] if "topics" in job else [topic]


class Receipts:
    """Counts receipts; called on the client's thread."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.latencies_us: list[int] = []

    def counted(self, result: object, _id: object) -> None:
        """Notes a receipt."""
        if getattr(result, "name", "") == "Ok":
            self.done += 1
        else:
            self.failed += 1

    def timed(self, sent_ns: int, result: object, message_id: object) -> None:
        """Notes a receipt and its latency."""
        self.latencies_us.append((time.monotonic_ns() - sent_ns) // 1000)
        self.counted(result, message_id)


def consume(client: pulsar.Client, job: Job, ready: Callable[[], None]) -> Result:
    """Reads every subscription to the end, one thread each; ends with the last new message."""
    import pulsar

    policy = pulsar.ConsumerBatchReceivePolicy(CATCH_UP_BATCH, -1, 10)
    consumers = [
        client.subscribe(
            job["topic"],
            name,
            receiver_queue_size=CATCH_UP_BATCH * 2 if job.get("bulk") else 1000,
            initial_position=pulsar.InitialPosition.Earliest,
            batch_receive_policy=policy,
        )
        for name in job.get("subscriptions", ["sub"])
    ]
    # Made before `ready`, so that connecting and subscribing are not measured.
    readers = [Reader(consumer, job) for consumer in consumers]
    ready()
    started = time.monotonic_ns()
    threads = [threading.Thread(target=reader.run) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "started_ns": started,
        "ended_ns": max(reader.ended_ns for reader in readers),
        "done": sum(reader.checker.first_seen for reader in readers),
        "entries": len(readers[0].entries),
        "latencies_us": readers[0].latencies_us,
        "verdict": list(total(reader.checker for reader in readers)),
    }


class Reader:
    """One consumer, read to the end; gives up after `IDLE_S` without a message."""

    def __init__(self, consumer: pulsar.Consumer, job: Job) -> None:
        self._consumer = consumer
        self._idle_ns = int(IDLE_S * 1e9)
        self._timed = bool(job.get("rate"))
        self._bulk = job.get("bulk", False)
        self.checker = Checker(job["count"])
        self.latencies_us: list[int] = []
        self.entries: set[tuple[int, int]] = set()
        self.ended_ns = time.monotonic_ns()

    def run(self) -> None:
        """Reads until complete or idle; on a thread of its own."""
        if self._bulk:
            self._run_bulk()
        else:
            self._run_single()

    def _run_single(self) -> None:
        import pulsar

        timeout_ms = self._idle_ns // 1_000_000
        unpack = HEAD.unpack_from
        while not self.checker.complete():
            try:
                message = self._consumer.receive(timeout_ms)
            except pulsar.Timeout:
                # The silence is not part of the work: it ended with the last message.
                self.ended_ns = time.monotonic_ns() - self._idle_ns
                return
            number, sent_ns = unpack(message.data())
            self.checker.see(number)
            if self._timed:
                self.latencies_us.append((time.monotonic_ns() - sent_ns) // 1000)
            identity = message.message_id()
            self.entries.add((identity.ledger_id(), identity.entry_id()))
            self._consumer.acknowledge(message)
        self.ended_ns = time.monotonic_ns()

    def _run_bulk(self) -> None:
        # The wrapped consumer's own list: the public method wraps every message once more, at half the speed.
        native = self._consumer._consumer
        see, unpack = self.checker.see, HEAD.unpack_from
        last_ns = time.monotonic_ns()
        while not self.checker.complete():
            messages = native.batch_receive()
            now = time.monotonic_ns()
            if not messages:
                if now - last_ns > self._idle_ns:
                    return
                continue
            last_ns = now
            for message in messages:
                see(unpack(message.data())[0])
            native.acknowledge_cumulative(messages[-1])
            self.ended_ns = time.monotonic_ns()


def consume_steadily(client: pulsar.Client, job: Job, ready: Callable[[], None]) -> Result:
    """Counts and acks the messages of all topics in listeners; ends when all are there, or after a silence."""
    clients = clients_of(client, job)
    topics = {topic: Checker(job["count"]) for topic in topics_of(job)}

    def seen(checker: Checker, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        checker.see(HEAD.unpack_from(message.data())[0])
        consumer.acknowledge(message)

    for number, (topic, checker) in enumerate(topics.items()):
        clients[number % len(clients)].subscribe(topic, "sub", message_listener=partial(seen, checker))
    ready()
    started = ended = time.monotonic_ns()
    done = 0
    while done < job["count"] * len(topics) and time.monotonic_ns() - ended < IDLE_S * 1e9:
        time.sleep(POLL_S)
        now_done = sum(checker.first_seen for checker in topics.values())
        if now_done > done:
            done, ended = now_done, time.monotonic_ns()
    verdict = total(topics.values())
    _close(clients[1:])
    return {"started_ns": started, "ended_ns": ended, "done": done, "verdict": list(verdict)}


def _close(clients: Sequence[pulsar.Client]) -> None:
    # A client that the interpreter deletes instead holds the interpreter's lock while it waits, up to 10 s, for a
    # connection whose last callback waits for that lock.
    for client in clients:
        client.close()


def many_topics(client: pulsar.Client, job: Job, ready: Callable[[], None]) -> Result:
    """`count` topics with a producer and a subscription each, one message through every one of them."""
    import pulsar

    ready()
    started = time.monotonic_ns()
    pairs = [_pair(client, f"{job['topic']}-{index}") for index in range(job["count"])]
    created = time.monotonic_ns()
    receipts = Receipts()
    for producer, _ in pairs:
        producer.send_async(HEAD.pack(0, 0), receipts.counted)
        producer.flush()
    checkers = [Checker(1) for _ in pairs]
    for (_, consumer), checker in zip(pairs, checkers, strict=True):
        with contextlib.suppress(pulsar.Timeout):
            message = consumer.receive(2000)
            checker.see(HEAD.unpack_from(message.data())[0])
            consumer.acknowledge(message)
    _say({"created": True})
    _wait()
    return {
        "started_ns": started,
        "ended_ns": created,
        "create_s": (created - started) / 1e9,
        "failed": receipts.failed,
        "verdict": list(total(checkers)),
    }


def first_message(client: pulsar.Client, job: Job, ready: Callable[[], None]) -> Result:
    """Subscribes, sends one message and receives it; connects only when told to go."""
    ready()
    producer, consumer = _pair(client, job["topic"])
    producer.send(HEAD.pack(0, 0))
    message = consumer.receive(20_000)
    ended = time.monotonic_ns()
    consumer.acknowledge(message)
    return {"ended_ns": ended}


def _pair(client: pulsar.Client, topic: str) -> tuple[pulsar.Producer, pulsar.Consumer]:
    return client.create_producer(topic), client.subscribe(topic, "sub")


def _paced(count: int, rate: float) -> Iterator[tuple[int, int]]:
    """(number, time of sending); the time is 0 when there is no rate to keep."""
    if not rate:
        for number in range(count):
            yield number, 0
        return
    step = int(1e9 / rate)
    due = time.monotonic_ns()
    for number in range(count):
        ahead = due - time.monotonic_ns()
        if ahead > 0:
            time.sleep(ahead / 1e9)
        yield number, time.monotonic_ns()
        # From the time that was due: a message that is sent late lowers the rate of none after it.
        due += step


JOBS: dict[str, Callable[[pulsar.Client, Job, Callable[[], None]], Result]] = {
    "produce": produce,
    "consume": consume,
    "consume_steadily": consume_steadily,
    "many_topics": many_topics,
    "first_message": first_message,
}
"""By the kind of a job."""


def _say(value: object) -> None:
    print(json.dumps(value), flush=True)


def _wait() -> None:
    if not sys.stdin.readline():
        sys.exit("the bench has gone")


def connect(job: Job) -> pulsar.Client:
    """Returns a client without log lines; it opens one connection."""
    import pulsar

    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    return pulsar.Client(job["url"], logger=logger, stats_interval_in_seconds=0)


def main() -> None:
    """Reads one job, executes it and prints its result."""
    job: Job = json.loads(sys.stdin.readline())
    client = connect(job)

    def ready() -> None:
        _say({"ready": True})
        _wait()

    result = JOBS[job["kind"]](client, job, ready)
    _say(result)
    # Closing may block on a broker that has ended; the result is printed already, so do not wait for ever.
    closer = threading.Thread(target=client.close, daemon=True)
    closer.start()
    closer.join(CLOSE_TIMEOUT_S)


if __name__ == "__main__":
    main()
