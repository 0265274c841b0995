"""Clients of the cluster: a producer and a consumer of each topic, which look their topic up as Pulsar's clients do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from broker.service.consumer import SubscribeOptions, SubscriptionType
from broker.service.producer import AccessMode, Producer
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.entry import Entry
from foundation.model.errors import BrokerError
from foundation.model.position import EARLIEST
from foundation.model.topic_name import TopicName
from tests.fakes.messages import message
from tests.fakes.ports import FakeConsumerPort, FakeProducerPort
from tests.sim.cluster.process import ClusterProcess
from tests.sim.metadata import Broken

if TYPE_CHECKING:
    from tests.sim.cluster.history import ClusterHistory

T = TypeVar("T")
HOPS_MAX = 3
"""Lookups from the first one to the broker that has the topic."""
REQUEST_S = 4.0
"""After which a client gives a request up."""
IN_FLIGHT = 20
RUN_LENGTHS = (1, 1, 2, 5)
"""Messages that a producer sends at once, drawn each time."""
KEEPER, WORKER = "keeper", "worker"
"""Subscriptions: one acknowledges nothing, so that everything stays; the other acknowledges what it gets."""


class Unserved(Exception):
    """The broker does not answer, or refuses; the client tries again."""


async def call(
    history: ClusterHistory, process: ClusterProcess | None, work: Callable[[], Coroutine[object, object, T]]
) -> T:
    """Has a broker do the work, as a request over a connection. Raises Unserved, also for a broker that is not there."""
    await asyncio.sleep(history.rng.uniform(0.0002, 0.004))
    if process is None or not process.is_up:
        raise Unserved("nobody listens there")
    left_s = process.paused_until_s - history.loop.time()
    if left_s > REQUEST_S:
        await asyncio.sleep(REQUEST_S)
        raise Unserved("no answer")
    await asyncio.sleep(max(left_s, 0.0))
    answered: asyncio.Future[T] = history.loop.create_future()

    async def answer() -> None:
        try:
            result = await work()
        except BrokerError as error:
            if not answered.done():
                answered.set_exception(Unserved(f"{type(error).__name__}: {error}"))
        else:
            if not answered.done():
                answered.set_result(result)

    process.spawn(answer(), "request")
    try:
        async with asyncio.timeout(REQUEST_S):
            result = await answered
    except TimeoutError:
        raise Unserved("no answer") from None
    await asyncio.sleep(
        history.rng.uniform(0.0002, 0.004) + max(process.paused_until_s - history.loop.time(), 0.0)
    )
    if process.client.crashed:
        raise Unserved("the connection broke")
    return result


async def find(history: ClusterHistory, first: ClusterProcess | None, name: TopicName) -> ClusterProcess:
    """Looks the topic up, beginning at a broker. Raises Unserved, and Broken after too many hops."""
    return await follow(history, first, name, authoritative=False)


async def follow(
    history: ClusterHistory, first: ClusterProcess | None, name: TopicName, *, authoritative: bool
) -> ClusterProcess:
    """Looks the topic up, as `find`, from a broker on that takes it if `authoritative` says so."""
    asked = first
    way = []
    for hop in range(1, HOPS_MAX + 1):
        if asked is None:
            raise Unserved("nobody listens there")
        look = partial(asked.ownership.owner_of, name, authoritative=authoritative)
        owner = await call(history, asked, look)
        way.append(f"{owner.addresses.service_url} {owner.is_redirect} {owner.authoritative}")
        asked = history.at(owner.addresses)
        history.counts.hops_most = max(history.counts.hops_most, hop)
        if not owner.is_redirect:
            if asked is None:
                raise Unserved("the owner is no more")
            return asked
        authoritative = owner.authoritative
    if history.leader_changed_within(HOPS_MAX * REQUEST_S):
        raise Unserved("the leader changed during the lookup")
    raise Broken(
        f"no owner of {name} after {HOPS_MAX} lookups, the first at {first and first.client.name}: {way}"
    )


class Link:
    """The common part of a producer and a consumer: both find their topic again and again."""

    def __init__(self, history: ClusterHistory, name: TopicName) -> None:
        self.history = history
        self.name = name
        self.is_served = True
        self.process: ClusterProcess | None = None
        """The broker that it is connected to, or asks for the owner first."""
        self.waited_s = 0.0
        """How long it has not been served although nothing hindered that."""
        self._turn = 0

    async def run(self) -> None:
        while True:
            try:
                await self._serve()
            except Unserved as error:
                self.history.note(f"{self.name} {type(self).__name__}: {error}")
            self.is_served, self.process = False, None
            await asyncio.sleep(self.history.rng.uniform(0.05, 0.5))

    async def _serve(self) -> None:
        """Uses the topic until the connection ends."""
        raise NotImplementedError

    async def _open(self) -> tuple[ClusterProcess, PersistentTopic]:
        self._turn += 1
        places = self.history.places
        self.process = places[(self._turn + self.history.rng.randint(0, 1)) % len(places)]
        found = await find(self.history, self.process, self.name)
        self.history.faults.disturb_opening(found)
        topic = await call(self.history, found, lambda: found.registry.get(self.name, create=True))
        assert isinstance(topic, PersistentTopic)
        self.process = found
        return found, topic


class Receipts(FakeProducerPort):
    """One connection of a producer; hears each receipt after its way, or when the broker goes on."""

    def __init__(self, publisher: Publisher, process: ClusterProcess) -> None:
        super().__init__()
        self._publisher = publisher
        self._process = process
        self.is_closed = False
        """True once the broker drops what comes from the producer."""
        self.is_over = False
        """True once the client knows."""

    def receipt(self, sequence_id: int, highest: int, ledger_id: int, entry_id: int, size: int) -> None:
        self._later(partial(self._publisher.confirmed, self, sequence_id, (ledger_id, entry_id)))

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        self.closed_by_broker()

    def closed_by_broker(self) -> None:
        self.is_closed = True
        self._later(self._end)

    def _end(self) -> None:
        self.is_over = True

    def _later(self, heard: Callable[[], None]) -> None:
        history = self._publisher.history
        left_s = self._process.paused_until_s - history.loop.time()

        def hear() -> None:
            if not (self.is_over or self._process.client.crashed):
                heard()

        history.loop.call_later(max(left_s, 0.0), hear)


class Publisher(Link):
    """Sends numbered messages; those without a receipt again, in their order, on the next connection."""

    def __init__(self, history: ClusterHistory, name: TopicName) -> None:
        super().__init__(history, name)
        self.pending: dict[int, None] = {}
        """Numbers without a receipt, in order."""
        self.positions: dict[tuple[int, int], int] = {}
        """Numbers of confirmed messages by (ledger id, entry id)."""
        self.sent: dict[int, int] = {}
        """How often each message was sent."""
        self.stops = False
        """True when no new message is sent any more."""
        self._number = 0

    def body(self, number: int) -> bytes:
        return b"#%s:%d" % (self.name.local.encode(), number)

    def confirmed(self, port: Receipts, number: int, position: tuple[int, int]) -> None:
        history = self.history
        if self.positions.setdefault(position, number) != number:
            history.broken(f"{self.name}: {number} and {self.positions[position]} are both at {position}")
        if number not in self.pending:
            history.broken(f"{self.name}: {number} is confirmed twice on one connection")
        history.judge_receipt(self.name, number, position)
        self.pending.pop(number, None)
        history.counts.confirmed += 1
        history.served(self)

    async def _serve(self) -> None:
        history = self.history
        process, topic = await self._open()
        # Before the first message: without a subscription nothing keeps it.
        for one in (KEEPER, WORKER):
            if one not in topic.subscriptions:
                await call(history, process, partial(topic.subscribing.create, one, EARLIEST, {}))
        port = Receipts(self, process)
        producer = Producer(
            topic,
            port,
            producer_id=0,
            name=self.name.local,
            access_mode=AccessMode.SHARED,
            topic_epoch=None,
        )
        # A name of its own for each connection: the broker may not know yet that the former one is over.
        producer.name = f"{self.name.local}-{history.next_number()}"
        await call(history, process, lambda: topic.add_producer(producer))
        try:
            again = list(self.pending)
            while again:
                length = history.rng.choice(RUN_LENGTHS)
                # Sequence ids of a run follow one another; a receipt that came may leave a gap.
                length = next(
                    (n for n in range(1, min(length, len(again))) if again[n] != again[0] + n), length
                )
                self._send_run(producer, port, again[:length])
                del again[:length]
            while not (port.is_over or process.client.crashed or not process.is_up):
                if not self.stops and len(self.pending) < IN_FLIGHT:
                    length = history.rng.choice(RUN_LENGTHS)
                    first, self._number = self._number + 1, self._number + length
                    self._send_run(producer, port, range(first, first + length))
                elif self.stops and not self.pending:
                    history.served(self)
                await asyncio.sleep(history.rng.expovariate(2.0))
                # Nothing goes in while the broker stands still.
                await asyncio.sleep(max(process.paused_until_s - history.loop.time(), 0.0))
        finally:
            port.is_over = True
            if not process.client.crashed:
                process.spawn(topic.remove_producer(producer), "producer leaves")

    def _send_run(self, producer: Producer, port: Receipts, numbers: Sequence[int]) -> None:
        """Sends messages as one read of a connection brings them."""
        for number in numbers:
            self.pending[number] = None
        if port.is_closed:
            return
        for number in numbers:
            self.sent[number] = self.sent.get(number, 0) + 1
        bodies = [message(self.body(number)) for number in numbers]
        self.history.counts.runs_of_several += len(bodies) > 1
        try:
            producer.publish(numbers[0], 0, 1, bodies, sum(map(len, bodies)), False, False)
        except BrokerError as error:
            raise Unserved(f"{type(error).__name__}: {error}") from error


class Reader(Link):
    """A consumer that acknowledges what it gets."""

    def __init__(self, history: ClusterHistory, name: TopicName) -> None:
        super().__init__(history, name)
        self.got: set[int] = set()

    def _delivered(self, _: FakeConsumerPort, entry: Entry) -> None:
        topic, _colon, number = bytes(entry.body).rpartition(b"#")[2].partition(b":")
        if topic.decode() != self.name.local:
            self.history.broken(f"{self.name} delivers {bytes(entry.body)!r}")
        self.got.add(int(number))

    async def _serve(self) -> None:
        history = self.history
        process, topic = await self._open()
        port = FakeConsumerPort(self._delivered)
        number = history.next_number()
        options = SubscribeOptions(
            subscription=WORKER,
            kind=SubscriptionType.SHARED,
            consumer_id=number,
            consumer_name=f"c{number}",
            earliest=True,
            durable=True,
            read_compacted=False,
            start=None,
        )
        subscription, consumer = await call(history, process, lambda: topic.subscribe(port, options))
        subscription.flow(consumer, 1000)
        acknowledged = 0
        try:
            while not ("closed" in port.events or process.client.crashed or not process.is_up):
                await asyncio.sleep(history.rng.expovariate(2.0))
                await asyncio.sleep(max(process.paused_until_s - history.loop.time(), 0.0))
                keys, acknowledged = port.keys[acknowledged:], len(port.keys)
                if keys and not topic.closed:
                    subscription.acknowledge(consumer, keys)
                    subscription.flow(consumer, len(keys))
                history.served(self)
        finally:
            if not process.client.crashed and not topic.closed:
                subscription.remove_consumer(consumer)
