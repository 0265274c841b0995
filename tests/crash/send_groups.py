"""Messages sent in groups, so that a broker reads several SENDs in one piece: a run."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

import pulsar

GROUP: Final = 10
"""Messages that are sent before their receipts are awaited."""
TIMEOUT_S: Final = 300.0

Receipt = Future[pulsar.MessageId]


def send_groups(producer: pulsar.Producer, contents: Sequence[bytes | str]) -> list[pulsar.MessageId]:
    """Sends in order; returns the ids of all, each from its own receipt. Raises RuntimeError on a refusal."""
    found = []
    for first in range(0, len(contents), GROUP):
        group = contents[first : first + GROUP]
        receipts = [Receipt() for _ in group]
        for content, receipt in zip(group, receipts, strict=True):
            producer.send_async(content, partial(_answered, receipt))
        found += [receipt.result(TIMEOUT_S) for receipt in receipts]
    return found


def _answered(receipt: Receipt, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
    if result == pulsar.Result.Ok:
        receipt.set_result(message_id)
    else:
        receipt.set_exception(RuntimeError(f"a message is refused: {result}"))
