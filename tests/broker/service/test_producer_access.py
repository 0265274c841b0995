"""Who may publish beside whom, who waits, who is fenced, and whose epoch counts."""

from __future__ import annotations

import pytest

from broker.errors import BrokerError, MetadataError, ProducerBusy, ProducerFenced
from broker.metadata.metadata_store import ANY
from broker.service.producer import AccessMode, Producer
from broker.service.producer_access import ProducerAccess
from tests.fakes.ports import FakeProducerPort
from tests.fakes.stage import Stage, port_of

SHARED, EXCLUSIVE = AccessMode.SHARED, AccessMode.EXCLUSIVE
WAIT, FENCE = AccessMode.WAIT_FOR_EXCLUSIVE, AccessMode.EXCLUSIVE_WITH_FENCING


def producer(name: str, mode: AccessMode, epoch: int | None = None) -> Producer:
    class Topic:
        name = "t"

    return Producer(
        Topic(),  # type: ignore[arg-type]
        FakeProducerPort(),
        producer_id=0,
        name=name,
        access_mode=mode,
        topic_epoch=epoch,
    )
