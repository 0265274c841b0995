"""A producer's side of its connection: what is read of it, at which rate, and the answers."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from broker.service.producer import AccessMode, Producer
from broker.service.topics.persistent_topic import PersistentTopic
from foundation.model.errors import BrokerError
from tests.fakes.ports import FakeProducerPort
from tests.sim.lives.life import Life, Sent
from tests.sim.metadata import Broken
from tests.sim.network import Client

if TYPE_CHECKING:
    from tests.sim.lives.history import History

PAUSE_S_MAX = 5.0
"""A token of the lowest rate comes within a second, after one for each connection that came and left in the last moments."""
ROUNDING = 1e-6


class Receipts(FakeProducerPort):
    """Notes each confirmed message at the moment of its receipt; each has one answer, and receipts come in order.

    No message is read above the publish rate that holds, and a connection that waits for it goes on.
    """

    def __init__(self, history: History, life: Life, topic: PersistentTopic, client: Client) -> None:
        """`client`: the broker's process."""
        super().__init__()
        self._history = history
        self._life = life
        self._topic = topic
        self._client = client
        self.producer = Producer(
            topic,
            self,
            producer_id=0,
            name=f"p{history.next_life()}",
            access_mode=AccessMode.SHARED,
            topic_epoch=None,
        )
        self.asked: dict[int, Sent] = {}
        """Messages without an answer."""
        self._last = -1
        self._arrived: deque[tuple[int, bytes]] = deque()
        """SENDs that are not handled yet, with their sequence ids, which follow one another."""
        self._left = False
        self._pauses = 0
        self._times_paused = 0
        limit = topic.rates.publish
        self._rate = limit.rate.messages if limit is not None and limit.active else 0
        self._judged = not life.rate_in_doubt
        self._began_in_doubt = life.rate_in_doubt
        """No rate has been set on this connection since a change without an answer."""
        self._allowed = float(self._rate)
        """Messages that the rate allows now; it is the limit's at most, which may have been used before."""
        self._since_s = history.loop.time()

    @property
    def closed(self) -> bool:
        return "closed" in self.events

    # Sending

    @property
    def is_read(self) -> bool:
        return not self._pauses

    def send(self, first: int, bodies: list[bytes]) -> None:
        """Messages arrive in one read of the connection."""
        self._arrived += enumerate(bodies, first)
        self._handle()

    def _handle(self) -> None:
        """As `broker/net/sends.py` does: a run, or one by one where a rule looks at each message, until the port pauses."""
        while self._arrived and not self._pauses and not self._client.crashed and not self.closed:
            count = 1 if self._topic.single_sends else len(self._arrived)
            run = [self._arrived.popleft() for _ in range(count)]
            bodies = [body for _, body in run]
            self._judge_rate(count)
            self._history.counts.runs_of_several += count > 1
            self.producer.publish(run[0][0], 0, 1, bodies, sum(map(len, bodies)), False, False)

    async def leave(self) -> None:
        """The connection ends; nothing more of it is read."""
        self._left = True
        self._arrived.clear()
        if not self._client.crashed:
            await self._topic.remove_producer(self.producer)

    # The publish rate

    def rate_changes(self) -> None:
        """From now on until `rate_holds` either of two rates may hold."""
        self._judged = False

    def rate_holds(self, rate: int) -> None:
        """A rate holds, in messages a second; 0 = none. The same one as before does not begin anew."""
        if rate != self._rate or self._began_in_doubt:
            self._began_in_doubt = False
            self._rate, self._allowed, self._since_s = rate, float(rate), self._history.loop.time()
        self._judged = True

    def _judge_rate(self, count: int) -> None:
        if not self._rate or not self._judged:
            return
        now_s = self._history.loop.time()
        self._allowed = min(self._rate, self._allowed + self._rate * (now_s - self._since_s)) - count
        self._since_s = now_s
        if self._allowed < -ROUNDING:
            text = f"{self._life.name}: a message is read above the rate of {self._rate} a second"
            self._history.defect(Broken(text))

    def pause(self) -> None:
        self._pauses += 1
        self._times_paused += 1
        self._history.counts.paused += 1
        times = self._times_paused
        self._history.loop.call_later(PAUSE_S_MAX, self._check_goes_on, times)

    def go_on(self) -> None:
        self._pauses -= 1
        if not self._pauses:
            self._history.loop.call_soon(self._handle)

    def _check_goes_on(self, times: int) -> None:
        if self._pauses and times == self._times_paused and not self._left:
            text = f"{self._life.name}: a producer waits for the rate of {self._rate} for {PAUSE_S_MAX} s"
            self._history.defect(Broken(text))

    # Answers

    def receipt(self, sequence_id: int, highest: int, ledger_id: int, entry_id: int, size: int) -> None:
        self._life.sent[sequence_id] = self._answered(sequence_id)
        if sequence_id < self._last:
            self._history.defect(Broken(f"{self._life.name}: receipt {sequence_id} after {self._last}"))
        self._last = sequence_id
        self._life.positions[ledger_id, entry_id] = sequence_id
        self._history.state.known(ledger_id)
        self._history.counts.confirmed += 1

    def refused(self, sequence_id: int, highest_sequence_id: int, size: int, error: BrokerError) -> None:
        self._answered(sequence_id)

    def _answered(self, sequence_id: int) -> Sent:
        if sequence_id not in self.asked:
            self._history.defect(Broken(f"{self._life.name}: two answers to {sequence_id}"))
        return self.asked.pop(sequence_id)
