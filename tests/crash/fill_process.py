"""A producer that fills a disk: `python -m tests.crash.fill_process URL TOPIC BYTES BATCHED`.

Prints the number of each confirmed message, and `refused RESULT` for the first of each run of refused ones; it goes on until
it is killed.
"""

from __future__ import annotations

import random
import sys
import threading

import pulsar

WINDOW = 200
"""Messages without an answer."""
SEND_TIMEOUT_MS = 5000


def main() -> None:
    url, topic, size, batched = sys.argv[1:]
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    producer = client.create_producer(
        topic, send_timeout_millis=SEND_TIMEOUT_MS, batching_enabled=batched == "batched"
    )
    window = threading.Semaphore(WINDOW)
    payload = random.Random(0).randbytes(int(size))
    refused = False
    number = 0

    def answered(number: int, result: pulsar.Result, _id: object) -> None:
        nonlocal refused
        window.release()
        # One write per line, so that a kill leaves whole lines.
        if result == pulsar.Result.Ok:
            refused = False
            sys.stdout.write(f"{number}\n")
        elif not refused:
            refused = True
            sys.stdout.write(f"refused {result}\n")
        sys.stdout.flush()

    while True:
        window.acquire()
        body = b"%08d" % number + payload
        producer.send_async(body, lambda result, id_, sent=number: answered(sent, result, id_))
        number += 1


if __name__ == "__main__":
    main()
