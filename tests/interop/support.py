"""Helpers of the tests of this folder: waiting for conditions, REST, metrics, and short forms of the client.

Law of the place: no amount of time is ever waited for, only a condition; nothing in here decides whether a test
passes. A receive that comes to its time limit raises `pulsar.Timeout`, which fails the test that did not expect it.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from datetime import datetime
from http.client import HTTPMessage, HTTPResponse
from typing import IO, Final, TypeVar

import pulsar
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from magnetar.kit.controls import Clock
from tests.vectors.broker_process import BrokerProcess

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
Result = TypeVar("Result")

RECEIVE_MS: Final = 60_000
"""How long a message that must come may take on a busy machine."""
SILENCE_MS: Final = 300
"""How long is listened for a message that must not come."""
WAIT_S: Final = 60.0
_POLL_S: Final = 0.01
_POLL_MAX_S: Final = 0.1
"""Most conditions are a request to the broker: more of them would take the CPU that the broker needs to fulfil one."""


def wait_until(condition: Callable[[], Result], what: str, timeout_s: float = WAIT_S) -> Result:
    """The first truthy answer of `condition`. AssertionError that names `what` where none comes in time."""
    deadline = time.monotonic() + timeout_s
    pause, poll_s = threading.Event(), _POLL_S
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}; last answer {result!r}"
        pause.wait(poll_s)
        poll_s = min(1.2 * poll_s, _POLL_MAX_S)
    return result


class Admin:
    """The admin port of one broker: paths are those behind `/admin/v2/`."""

    def __init__(self, url: str, *scraped: str) -> None:
        """`scraped`: the admin ports of all its brokers, for metrics; that of `url` by default."""
        self.url = url
        self._scraped = scraped or (url,)

    @classmethod
    def of(cls, broker: BrokerProcess) -> Admin:
        """Its metrics are the sums of all its brokers, as a dashboard of a cluster adds them up."""
        return cls(broker.addresses.admin, *broker.admin_urls)

    def get(self, path: str) -> Json:
        answer: Json = json.loads(self._ask("GET", path) or b"null")
        return answer

    def get_everywhere(self, path: str) -> list[Json]:
        """The answers of all its brokers, about what each one has."""
        return [Admin(url).get(path) for url in self._scraped]

    def delete(self, path: str) -> None:
        self._ask("DELETE", path)

    def put(self, path: str, body: Json = None) -> None:
        self._ask("PUT", path, body)

    def post(self, path: str, body: Json = None) -> None:
        self._ask("POST", path, body)

    def configure(self, key: str, value: str) -> None:
        """Sets a setting at run time. urllib.error.HTTPError where it is refused."""
        self._ask("POST", f"brokers/configuration/{key}/{value}")

    def unconfigure(self, key: str) -> None:
        self._ask("DELETE", f"brokers/configuration/{key}")

    def stats(self, topic: str) -> dict[str, Json]:
        found = self.get(f"{_path(topic)}/stats")
        assert isinstance(found, dict)
        return found

    def subscription(self, topic: str, name: str) -> dict[str, Json]:
        """Empty while there is no such subscription."""
        subscriptions = self.stats(topic)["subscriptions"]
        assert isinstance(subscriptions, dict)
        found = subscriptions.get(name, {})
        assert isinstance(found, dict)
        return found

    def create_partitioned(self, topic: str, partitions: int) -> None:
        self.put(f"{_path(topic)}/partitions", partitions)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples called `name` that carry the labels."""
        return sum(
            sample.value
            for sample in self.samples()
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def owner(self, topic: str) -> str:
        """The address of the broker that has the topic, for a client that does not look it up."""
        return str(self._owner(topic)["brokerUrl"])

    def owner_url(self, topic: str) -> str:
        """The admin port of the broker that has the topic, for a client that follows no redirect."""
        return str(self._owner(topic)["httpUrl"])

    def with_owner_of(self, topic: str) -> str:
        """A non-persistent topic at the broker that has `topic`, for a client with one connection to both."""
        owner = self.owner(topic)
        names = (f"non-persistent://public/default/{topic}-{number}" for number in itertools.count())
        return next(name for name in names if self.owner(name) == owner)

    def _owner(self, topic: str) -> dict[str, Json]:
        with urllib.request.urlopen(f"{self.url}/lookup/v2/topic/{_path(topic)}", timeout=WAIT_S) as answer:
            found: dict[str, Json] = json.loads(answer.read())
            return found

    def samples(self) -> list[Sample]:
        """One scrape."""
        found: list[Sample] = []
        for url in self._scraped:
            with urllib.request.urlopen(f"{url}/metrics/") as answer:
                text = answer.read().decode()
            found += [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return found

    def _ask(self, method: str, path: str, body: Json = None) -> bytes:
        request = urllib.request.Request(
            f"{self.url}/admin/v2/{path}",
            method=method,
            data=b"" if body is None and method != "GET" else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        if method == "GET":
            request.data = None
        with open_url(request) as answer:
            content: bytes = answer.read()
            return content


class Clocks:
    """The clocks of all brokers of a cluster, which a test advances together."""

    def __init__(self, broker: BrokerProcess, token: str | None = None) -> None:
        self._clocks = [Clock(url, token) for url in broker.admin_urls]

    def now(self) -> datetime:
        return self._clocks[0].now()

    def advance(self, **length: float) -> None:
        for clock in self._clocks:
            clock.advance(**length)


def open_url(request: urllib.request.Request) -> HTTPResponse:
    """Sends the request, also to the broker to which the first one sends it on. urllib.error.HTTPError for a refusal."""
    answer: HTTPResponse = urllib.request.build_opener(_ToOwner).open(request, timeout=WAIT_S)
    return answer


class _ToOwner(urllib.request.HTTPRedirectHandler):
    """Follows the redirect of every method; urllib follows that of GET alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request:
        return urllib.request.Request(newurl, req.data, dict(req.headers), method=req.get_method())


def _path(topic: str) -> str:
    domain, separator, rest = topic.partition("://")
    return f"{domain}/{rest}" if separator else f"persistent/public/default/{topic}"


def connect(url: str, **options: object) -> pulsar.Client:
    """A client that keeps its log to errors."""
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(url, **{"operation_timeout_seconds": 60, "logger": logger, **options})


def publish(producer: pulsar.Producer, bodies: Iterable[bytes], **options: object) -> list[pulsar.MessageId]:
    """Without waiting for each receipt; the ids in the order of the bodies, once all are confirmed."""
    outcomes: list[tuple[pulsar.Result, pulsar.MessageId]] = []

    def confirmed(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        outcomes.append((result, message_id))

    count = 0
    for body in bodies:
        producer.send_async(body, confirmed, **options)
        count += 1
    producer.flush()
    wait_until(lambda: len(outcomes) == count, f"{count} receipts")
    assert {result for result, _ in outcomes} <= {pulsar.Result.Ok}
    return [message_id for _, message_id in outcomes]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


def receive(consumer: pulsar.Consumer, count: int, *, acknowledge: bool = True) -> list[bytes]:
    """The next `count` messages' bodies, in the order in which they came."""
    bodies = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        bodies.append(message.data())
        if acknowledge:
            consumer.acknowledge(message)
    return bodies


def read(reader: pulsar.Reader, count: int) -> list[bytes]:
    return [reader.read_next(RECEIVE_MS).data() for _ in range(count)]


def nothing_comes(consumer: pulsar.Consumer | pulsar.Reader) -> bool:
    """AssertionError that shows the message where one comes after all."""
    take = consumer.receive if isinstance(consumer, pulsar.Consumer) else consumer.read_next
    try:
        message = take(SILENCE_MS)
    except pulsar.Timeout:
        return True
    raise AssertionError(f"unexpected message {message.data()!r}")
