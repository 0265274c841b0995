"""`magnetar cache` against running brokers: an entry evicted because the cache was full, one by its age, one never cached.

What the command prints is held against the transcripts in docs/how-to/cache_why.md, up to times, ids and amounts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pulsar
import pytest

import magnetar
from tests.interop.support import Admin, connect, receive, wait_until
from tests.vectors.broker_process import REPOSITORY, BrokerProcess

PAGE: Final = REPOSITORY / "docs" / "how-to" / "cache_why.md"
BOTH: Final = {
    "entryCachePolicy": "pip430",
    "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis": "0",
}
SMALL: Final = {
    **BOTH,
    "managedLedgerCacheSizeMB": "1",
    "managedLedgerCacheEvictionTimeThresholdMillis": "3600000",
}
QUICK: Final = {**BOTH, "managedLedgerCacheEvictionTimeThresholdMillis": "200"}

BrokerWith = Callable[[Mapping[str, str]], BrokerProcess]
Connected = Callable[[str], pulsar.Client]


def run(broker: BrokerProcess, *words: str, status: int = 0) -> str:
    """Returns the output of `magnetar cache`, or its standard error when it fails."""
    command = [sys.executable, "-m", "magnetar", "cache", *words, "--admin-url", broker.addresses.admin]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def documented(command: str) -> str:
    """Returns the output that the page shows after `$ magnetar cache …`, for the command that begins like this."""
    blocks: list[str] = re.findall(r"```\n\$ (magnetar cache .*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if block.startswith(command)]
    return block.partition("\n")[2]


def shape(text: str) -> str:
    """Without times, ids, and how far lines are indented for them."""
    text = re.sub(r"(?m)^ +|(?<= ) +", "", text)
    text = re.sub(r"under 1 ms|\d+(\.\d+)? m?s\b", "TIME", text)
    return re.sub(r"\d+:\d+", "LEDGER:ENTRY", text)


def amounts(text: str) -> str:
    return re.sub(r" *[\d,]+(\.\d+)?( %| [KM]iB)?", " N", text)


def place(message_id: pulsar.MessageId) -> str:
    return f"{message_id.ledger_id()}:{message_id.entry_id()}"


def full_cache(broker: BrokerProcess, client: pulsar.Client) -> list[pulsar.MessageId]:
    """2 MiB for a cache of one, entry by entry, read at once by `tail` and from the second on not by `billing`."""
    tail = client.subscribe("orders", "tail")
    client.subscribe("orders", "billing", receiver_queue_size=1)
    producer = client.create_producer("orders")
    ids = [producer.send(bytes(64 * 1024)) for _ in range(32)]
    receive(tail, 32)
    return ids


def test_evicted_for_want_of_room(broker_with: BrokerWith, connected: Connected) -> None:
    broker = broker_with(SMALL)
    ids = full_cache(broker, connected(broker.addresses.pulsar))
    printed = run(broker, "why", "orders", place(ids[5]))
    assert shape(printed) == shape(documented("magnetar cache why orders"))
    assert f"persistent://public/default/orders {place(ids[5])}\n" in printed
    assert "although billing had not read it" in printed
    told = json.loads(run(broker, "why", "persistent://public/default/orders", place(ids[5]), "--json"))
    assert told["events"][-1]["reason"] == "size"
    assert told["conclusion"].partition("ago")[2] == printed.splitlines()[-1].partition("ago")[2]
    assert run(broker, "why", "orders", place(ids[-1])).endswith(": billing will still read it.\n")


def test_evicted_by_its_age(broker_with: BrokerWith, connected: Connected) -> None:
    broker = broker_with(QUICK)
    client = connected(broker.addresses.pulsar)
    tail = client.subscribe("clicks", "tail")
    sent = client.create_producer("clicks").send(b"click")
    receive(tail, 1)
    admin = Admin.of(broker)
    wait_until(lambda: admin.metric("pulsar_ml_cache_x_evicted_total", reason="ttl") >= 1, "its time is over")
    printed = run(broker, "why", "clicks", place(sent))
    assert shape(printed) == shape(documented("magnetar cache why clicks"))


def test_never_cached_and_read_from_storage_later(broker_with: BrokerWith, connected: Connected) -> None:
    broker = broker_with(QUICK)
    client = connected(broker.addresses.pulsar)
    sent = client.create_producer("audit").send(b"nobody listens")
    printed = run(broker, "why", "audit", place(sent))
    assert shape(printed) == shape(documented("magnetar cache why audit"))
    late = client.subscribe("audit", "late", initial_position=pulsar.InitialPosition.Earliest)
    receive(late, 1)
    assert "read from storage for late" in run(broker, "why", "audit", place(sent))


@pytest.mark.one_broker("asks one process for its cache")
def test_which_topics_fill_the_cache(broker_with: BrokerWith, connected: Connected) -> None:
    broker = broker_with({**SMALL, "clusterName": "of-its-own"})
    client = connected(broker.addresses.pulsar)
    full_cache(broker, client)
    quiet = client.subscribe("returns", "tail")
    client.create_producer("returns").send(b"x" * 1000)
    receive(quiet, 1)
    printed = run(broker, "top", "--sort", "bytes", "-n", "5")
    assert amounts(printed) == amounts(documented("magnetar cache top"))
    by_bytes = json.loads(run(broker, "top", "--json"))
    assert [topic["topic"].rpartition("/")[2] for topic in by_bytes["topics"]] == ["orders", "returns"]
    assert len(run(broker, "top", "-n", "1").splitlines()) == len(printed.splitlines()) - 1


def test_why_names_an_unknown_topic_ledger_or_entry(
    broker_with: BrokerWith, connected: Connected, tmp_path: Path
) -> None:
    broker = broker_with(QUICK)
    sent = connected(broker.addresses.pulsar).create_producer("known").send(b"x")
    assert "Topic persistent://public/default/unknown not found (404)" in run(
        broker, "why", "unknown", "1:1", status=1
    )
    assert "has no ledger 999999; its ledgers are from" in run(broker, "why", "known", "999999:0", status=1)
    assert f"has no entry 7; its last one is {place(sent)} (404)" in run(
        broker, "why", "known", f"{sent.ledger_id()}:7", status=1
    )


def test_events_of_an_entry_are_in_order_after_an_advance_of_the_clock() -> None:
    with magnetar.Broker() as broker:
        client = connect(broker.pulsar_url)
        consumer = client.subscribe("t", "s")
        producer = client.create_producer("t", batching_enabled=False)
        broker.clock.advance(hours=1)
        place = producer.send(b"x")
        receive(consumer, 1)
        client.close()
        path = f"persistent/public/default/t/{place.ledger_id()}/{place.entry_id()}"
        told = Admin(broker.admin_url).get(f"magnetar/cache/why/{path}")
    assert isinstance(told, dict)
    events = told["events"]
    assert isinstance(events, list)
    ages = [event["secondsAgo"] for event in events if isinstance(event, dict)]
    assert len(ages) >= 2
    assert all(isinstance(age, float) and 0 <= age < 60 for age in ages), ages
