"""Messages with keys, and compactions of them: `python -m tests.crash.keyed_process URL TOPIC RECORDS ADMIN-URL`.

Says `ready`, then publishes until it is killed, single messages and batches in turns, and asks for a compaction every few
hundred milliseconds. A message without a payload deletes its key.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pulsar

from tests.crash.records import Message, Recorder

KEYS = 40
EVERY_S = 0.3
KEEPER = "keeper"
"""A subscription that never acknowledges, so that the log can be compared with its compacted view."""
TIMEOUT_S = 300.0


def main(url: str, topic: str, records: str, admin_url: str) -> None:
    recorder = Recorder(Path(records))
    client = quiet_client(url)
    client.subscribe(topic, KEEPER, initial_position=pulsar.InitialPosition.Earliest).close()
    producers = [
        client.create_producer(topic, batching_enabled=batching, batching_max_publish_delay_ms=5)
        for batching in (False, True)
    ]
    print("ready", flush=True)
    threading.Thread(target=_compact_on, args=(admin_url, topic), daemon=True).start()
    for number in itertools.count():
        key = f"k{number * 7 % KEYS}"
        # A run of 20 messages goes to one producer and is confirmed before the other one's begins.
        producer = producers[number // 20 % 2]
        payload = b"" if number % 11 == 5 else b"%d" % number
        confirmed = partial(_receipt, recorder, Message(key, number))
        producer.send_async(payload, confirmed, partition_key=key)
        if number % 20 == 19:
            producer.flush()


def quiet_client(url: str) -> pulsar.Client:
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def judge_compaction(client: pulsar.Client, topic: str, admin_url: str, confirmed: set[int]) -> list[str]:
    """Compares the compacted view with the log, as it is and behind one more compaction."""
    log: dict[str, bytes] = {}
    numbers: set[int] = set()
    for key, payload in _read(client, topic, compacted=False):
        log[key] = payload
        if payload:
            numbers.add(int(payload))
    lost = {number for number in confirmed if number % 11 != 5} - numbers
    findings = (
        [f"compacted: {len(lost)} confirmed messages are lost, the first is {min(lost)}"] if lost else []
    )
    wanted = {key: payload for key, payload in log.items() if payload}
    for when in ("at once", "after one more compaction"):
        view = dict(_read(client, topic, compacted=True))
        found = {key: payload for key, payload in view.items() if payload}
        wrong = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        if wrong:
            findings.append(f"compacted: {when} {len(wrong)} keys are wrong: {wrong[:5]}")
        if when == "at once":
            compact(admin_url, topic)
    return findings


def _read(client: pulsar.Client, topic: str, *, compacted: bool) -> list[tuple[str, bytes]]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=compacted)
    found = []
    try:
        while reader.has_message_available():
            message = reader.read_next(60_000)
            # The C++ client delivers the empty places of a batch too, without a key; every message here has one.
            if message.partition_key():
                found.append((message.partition_key(), message.data()))
    finally:
        reader.close()
    return found


def compact(admin_url: str, topic: str) -> None:
    """Compacts the topic and returns when that has succeeded."""
    _ask(admin_url, topic, "PUT")
    deadline = time.monotonic() + TIMEOUT_S
    while json.loads(_ask(admin_url, topic, "GET"))["status"] != "SUCCESS":
        if time.monotonic() > deadline:
            raise RuntimeError(f"the compaction of {topic} does not end")
        time.sleep(0.02)


def _compact_on(admin_url: str, topic: str) -> None:
    while True:
        # Refused while one runs, and when the broker dies.
        with contextlib.suppress(urllib.error.URLError, OSError):
            _ask(admin_url, topic, "PUT")
        time.sleep(EVERY_S)


def _ask(admin_url: str, topic: str, method: str) -> bytes:
    url = f"{admin_url}/admin/v2/{topic.replace('://', '/')}/compaction"
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60) as answer:
        return bytes(answer.read())


def _receipt(recorder: Recorder, message: Message, result: pulsar.Result, _id: object) -> None:
    if result == pulsar.Result.Ok:
        recorder.confirmed(message, time.monotonic_ns())


if __name__ == "__main__":
    main(*sys.argv[1:])
