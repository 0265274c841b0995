"""Who may publish: shared and exclusive producers of one topic, decided without waiting (PIP-68).

| newcomer \\ present     | nobody       | shared producers    | an exclusive one |
| Shared                 | in           | in                  | ProducerBusy     |
| Exclusive              | in, epoch+1  | ProducerFenced      | ProducerFenced   |
| WaitForExclusive       | in, epoch+1  | waits               | waits            |
| ExclusiveWithFencing   | in, epoch+1  | they are fenced, epoch+1, in           |

A client that comes back names the epoch it had: a lower one than the topic's is fenced, the topic's own is
let in again without a new epoch.
"""

from __future__ import annotations

from broker.model.errors import ProducerBusy, ProducerFenced
from broker.service.producer import AccessMode, Producer


class ProducerAccess:
    __slots__ = ("epoch", "exclusive", "producers", "waiting")

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        """Grows with each exclusive producer; None before the first one. The topic keeps it durable."""
        self.producers: dict[str, Producer] = {}
        """Those that may publish, by name."""
        self.exclusive: Producer | None = None
        self.waiting: list[Producer] = []

    def enter(self, producer: Producer) -> list[Producer]:
        """Let the producer in or make it wait (`producer.waiting`). Answers those it has fenced.

        ProducerBusy: the name is taken, or an exclusive producer is there. ProducerFenced: see the table.
        """
        holder = self.producers.get(producer.name)
        if holder is not None and producer.access_mode is not AccessMode.EXCLUSIVE_WITH_FENCING:
            raise ProducerBusy(
                f"Producer with name '{producer.name}' is already connected to topic '{producer.topic.name}'"
            )
        if producer.access_mode is AccessMode.SHARED:
            if self.exclusive is not None:
                raise ProducerBusy(f"Topic has an existing exclusive producer: {self.exclusive.name}")
            self._admit(producer)
            return []
        self._check_epoch(producer)
        if not self.producers:
            self._grant(producer)
            return []
        return self._enter_beside_others(producer)

    def _check_epoch(self, producer: Producer) -> None:
        known = producer.topic_epoch
        if known is not None and self.epoch is not None and known < self.epoch:
            if self.exclusive is not None:
                raise ProducerFenced(f"Topic has an existing exclusive producer: {self.exclusive.name}")
            raise ProducerFenced(
                f"Topic epoch has already moved. Current epoch: {self.epoch}, Producer epoch: {known}"
            )

    def _enter_beside_others(self, producer: Producer) -> list[Producer]:
        match producer.access_mode:
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                producer.waiting = True
                self.waiting.append(producer)
                return []
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                fenced = list(self.producers.values()) + self.waiting
                self.producers.clear()
                self.waiting.clear()
                for other in fenced:
                    other.fenced = True
                self._grant(producer)
                return fenced
            case _ if self.exclusive is not None:
                raise ProducerFenced(f"Topic has an existing exclusive producer: {self.exclusive.name}")
            case _:
                raise ProducerFenced("Topic has existing shared producers")

    def _grant(self, producer: Producer) -> None:
        if producer.topic_epoch is None or producer.topic_epoch != self.epoch:
            self.epoch = 0 if self.epoch is None else self.epoch + 1
        producer.topic_epoch = self.epoch
        producer.waiting = False
        self.exclusive = producer
        self._admit(producer)

    def _admit(self, producer: Producer) -> None:
        self.producers[producer.name] = producer

    def leave(self, producer: Producer) -> Producer | None:
        """Forget the producer. Answers the one that waited longest, when it has access now."""
        if producer in self.waiting:
            self.waiting.remove(producer)
            return None
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
        if self.exclusive is producer:
            self.exclusive = None
        if self.producers or not self.waiting:
            return None
        heir = self.waiting.pop(0)
        self._grant(heir)
        return heir
