"""The official producers of a round: `python -m tests.crash.produce_process URL ROUND-PLAN-JSON RECORDS`.

Says `ready` when all have connected; at `stop` on standard input sends no more, waits for every receipt and
says `done`. The client reconnects and sends again by itself, as it does for every user.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pulsar

from tests.crash.plan import ProducerPlan, RoundPlan
from tests.crash.records import Message, Recorder

SIZE = 200
BATCH = 10
BURST = 8
"""Messages that a producer sends at once, so that the broker reads several in one piece: a run."""


def main() -> None:
    url, plan_text, records = sys.argv[1:]
    plan = RoundPlan(*json.loads(plan_text))
    recorder = Recorder(Path(records))
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    producers = [(each, _producer(client, each)) for each in plan.producers()]
    stop = threading.Event()
    threading.Thread(target=_wait_for_stop, args=(stop,), daemon=True).start()
    print("ready", flush=True)
    number, due = 0, time.monotonic()
    while not stop.is_set():
        for each, producer in producers:
            for place in range(BURST):
                message = Message(each.name, number + place)
                producer.send_async(message.body(SIZE), partial(_receipt, recorder, message))
        number += BURST
        due += BURST / plan.rate
        time.sleep(max(0.0, due - time.monotonic()))
    for _, producer in producers:
        producer.flush()
    print("done", flush=True)
    client.close()


def _producer(client: pulsar.Client, plan: ProducerPlan) -> pulsar.Producer:
    return client.create_producer(
        plan.topic,
        producer_name=plan.name,
        send_timeout_millis=0,
        block_if_queue_full=True,
        batching_enabled=plan.batched,
        batching_max_messages=BATCH,
    )


def _receipt(recorder: Recorder, message: Message, result: pulsar.Result, _id: object) -> None:
    if result == pulsar.Result.Ok:
        recorder.confirmed(message, time.monotonic_ns())


def _wait_for_stop(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


if __name__ == "__main__":
    main()
