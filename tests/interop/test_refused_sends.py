"""Sends of the C++ client to a topic in a state that refuses all: each is answered once, and none is stored.

Single messages among good ones are refused in `java/Refused.java` alone: the C++ client answers that by connecting again
and sending the same messages without an end, to Apache's broker too (docs/how-to/limits.md).
"""

from __future__ import annotations

from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, nothing_comes, numbered, receive, wait_until

SETTINGS: Final = {"backlogQuotaCheckIntervalInSeconds": "1"}
MESSAGES: Final = 20

pytestmark = pytest.mark.parametrize("batched", [False, True])


class Sends:
    """Sends of one producer, with results that come in any order."""

    def __init__(self, client: pulsar.Client, topic: str, batched: bool, *, timeout_ms: int = 60_000) -> None:
        self._producer = client.create_producer(
            topic,
            batching_enabled=batched,
            batching_max_messages=4,
            batching_max_publish_delay_ms=20,
            send_timeout_millis=timeout_ms,
        )

    def results(self) -> set[pulsar.Result]:
        """Sends numbered messages without waiting; returns when each has its result."""
        results: list[pulsar.Result] = []
        for body in numbered(MESSAGES):
            self._producer.send_async(body, lambda result, _: results.append(result))
        wait_until(lambda: len(results) == MESSAGES, "the results of all sends")
        return set(results)


@pytest.mark.parametrize("state", ["encryption required", "above its quota", "terminated"])
def test_topic_in_a_state_that_refuses_all_stores_none(
    admin: Admin, client: pulsar.Client, topic: str, batched: bool, state: str
) -> None:
    namespace, name = f"public/{topic}", f"persistent://public/{topic}/refused"
    admin.put(f"namespaces/{namespace}", {})
    consumer = client.subscribe(name, "s")
    # After some refusals the C++ client ends the sends by this limit alone.
    sends = Sends(client, name, batched, timeout_ms=5000)
    assert Sends(client, name, batched).results() == {pulsar.Result.Ok}
    if state == "encryption required":
        admin.post(f"namespaces/{namespace}/encryptionRequired", True)
    elif state == "terminated":
        admin.post(f"persistent/{namespace}/refused/terminate")
    else:
        admin.post(f"namespaces/{namespace}/backlogQuota", {"limitSize": 1, "policy": "producer_exception"})
        wait_until(lambda: not admin.stats(name)["publishers"], "no producer")
    assert pulsar.Result.Ok not in sends.results()
    assert receive(consumer, MESSAGES) == numbered(MESSAGES)
    assert nothing_comes(consumer)
