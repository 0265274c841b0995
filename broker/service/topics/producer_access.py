"""ProducerAccess: grants and refuses access to a topic for shared and exclusive producers (PIP-68). Pure.

| new producer \\ present | none         | shared producers    | an exclusive one |
| Shared                 | in           | in                  | ProducerBusy     |
| Exclusive              | in, epoch+1  | ProducerFenced      | ProducerFenced   |
| WaitForExclusive       | in, epoch+1  | waits               | waits            |
| ExclusiveWithFencing   | in, epoch+1  | they are fenced, epoch+1, in           |

A client that reconnects names the epoch that it had. A lower one than the topic's is fenced; the topic's own one gets
access again without a new epoch.
"""

from __future__ import annotations

from broker.service.producer import AccessMode, Producer
from foundation.model.errors import ProducerBusy, ProducerFenced


class ProducerAccess:
    """Producers of one topic and those that wait for exclusive access."""

    __slots__ = ("epoch", "exclusive", "producers", "waiting")

    def __init__(self, epoch: int | None = None) -> None:
        self.epoch = epoch
        """Grows with each exclusive producer; None before the first one. `Topic.keep_epoch` stores it."""
        self.producers: dict[str, Producer] = {}
        """Producers with access, by name."""
        self.exclusive: Producer | None = None
        """The exclusive producer, None when there is none."""
        self.waiting: tuple[Producer, ...] = ()
        """Producers that wait for exclusive access, the longest waiting first."""

    def enter(self, producer: Producer) -> list[Producer]:
        """Grants access or lets the producer wait (`producer.waiting`); returns those that it fenced.

        ProducerBusy: the name is in use, or there is an exclusive producer. ProducerFenced: see the table above.
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
                self.waiting = (*self.waiting, producer)
                return []
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                # Waiting ones too: their place in the queue was for the access that is taken now.
                fenced = [*self.producers.values(), *self.waiting]
                self.clear()
                for other in fenced:
                    other.ended = True
                self._grant(producer)
                return fenced
            case _ if self.exclusive is not None:
                raise ProducerFenced(f"Topic has an existing exclusive producer: {self.exclusive.name}")
            case _:
                raise ProducerFenced("Topic has existing shared producers")

    def _grant(self, producer: Producer) -> None:
        if producer.topic_epoch is None or producer.topic_epoch != self.epoch:
            # The first epoch is 0. A client that brings the current one keeps it, as recorded of Pulsar 4.2.4.
            self.epoch = 0 if self.epoch is None else self.epoch + 1
        producer.topic_epoch = self.epoch
        producer.waiting = False
        self.exclusive = producer
        self._admit(producer)

    def _admit(self, producer: Producer) -> None:
        self.producers[producer.name] = producer

    def clear(self) -> None:
        """Forgets all producers, also those that wait."""
        self.producers.clear()
        self.waiting = ()
        self.exclusive = None

    def leave(self, producer: Producer) -> Producer | None:
        """Removes a producer; returns the one that waited longest when it has access now."""
        if producer in self.waiting:
            self.waiting = tuple(one for one in self.waiting if one is not producer)
            return None
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
        if self.exclusive is producer:
            self.exclusive = None
        # Shared producers may still be there; the queue waits until the last of them has left.
        if self.producers or not self.waiting:
            return None
        heir, *others = self.waiting
        self.waiting = tuple(others)
        self._grant(heir)
        return heir
