"""`magnetar admin audit` against a running broker: finds planted leaks, and takes them out of use step by step."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pulsar
import pytest

from bookkeeper.leaks.quarantine import ledger_record_key
from bookkeeper.leaks.rules import NO_PERSISTENT_TOPIC, PARTITION
from bookkeeper.metadata.sqlite_metadata_store import SqliteMetadataStore
from foundation.model.topic_name import parse_topic_name
from magnetar.__main__ import main
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState, decode, encode, ledger_key
from tests.crash.broker_process import BrokerProcess
from tests.interop.support import connect

KEPT, LEAKED = "kept", "leaked"
LIST = "/managed-ledgers/public/default/persistent/"
SCHEMA = f"/schema-versions/public/default/{LEAKED}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("leaks"))
    process.start()
    try:
        yield process
    finally:
        process.close()


def data(broker: BrokerProcess) -> Path:
    return broker.data / "metadata.sqlite"


def status(broker: BrokerProcess, method: str, path: str, body: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{broker.admin_url}{path}", body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def url_of(broker: BrokerProcess) -> str:
    return f"file:{data(broker)}"


async def _with_store(
    broker: BrokerProcess, work: str, key: str, value: bytes = b""
) -> bytes | list[str] | None:
    store = SqliteMetadataStore(data(broker))
    try:
        if work == "get":
            found = await store.get(key)
            return None if found is None else found.value
        if work == "put":
            await store.put(key, value)
        elif work == "delete":
            await store.delete(key)
        else:
            return await store.children(key)
    finally:
        await store.close()
    return None


def store(broker: BrokerProcess, work: str, key: str, value: bytes = b"") -> bytes | list[str] | None:
    return asyncio.run(_with_store(broker, work, key, value))


def audit(broker: BrokerProcess, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(
        [
            "admin",
            "audit",
            "--metadata-url",
            url_of(broker),
            "--admin-url",
            broker.admin_url,
            "--pause",
            "0.1",
            *flags,
        ]
    )
    out = capsys.readouterr()
    return code, out.out + out.err


def plant(broker: BrokerProcess) -> tuple[int, int]:
    """Leaves two topics; of one of them nobody removed cursor, schema and ledger. Returns the ids of their ledgers."""
    client = connect(broker.url)
    ids = []
    for name in (KEPT, LEAKED):
        topic = f"persistent://public/default/{name}"
        client.subscribe(topic, "s").close()
        producer = client.create_producer(topic, schema=pulsar.schema.StringSchema(), batching_enabled=False)
        ids += [producer.send(f"m{number}").ledger_id() for number in range(5)][:1]
    client.close()
    assert status(broker, "PUT", f"/admin/v2/persistent/public/default/{LEAKED}/unload") == 204
    store(broker, "delete", LIST + LEAKED)
    return ids[0], ids[1]


def test_leaks_are_found_put_into_quarantine_and_back_exported_and_deleted(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert audit(broker, capsys) == (0, "no findings; nothing was changed\n")
    kept, leaked = plant(broker)
    cursor = f"{LIST}{LEAKED}/s"
    expected = {
        f"ledgers  orphan  {leaked}  no topic, cursor, schema, compaction or delayed delivery refers to it",
        f"metadata  cursor  {cursor}  its topic does not exist",
        f"metadata  schema-index  {SCHEMA}  {NO_PERSISTENT_TOPIC}",
        f"metadata  schema-version  {SCHEMA}/0000000000  {NO_PERSISTENT_TOPIC}",
    }
    before = store(broker, "get", cursor)
    code, text = audit(broker, capsys)
    assert (code, set(text.splitlines()[:-1])) == (1, expected)
    assert text.splitlines()[-1].endswith("; nothing was changed")
    assert store(broker, "get", cursor) == before, "a dry run is the default"

    audit(broker, capsys, "--quarantine")
    assert store(broker, "get", cursor) is None
    assert store(broker, "get", ledger_key(leaked)) is not None, "bookies would give up its entries"
    code, text = audit(broker, capsys)
    assert [line.split()[1:3] for line in text.splitlines()[:-1]] == [["orphan", str(leaked)]]
    assert len(audit(broker, capsys, "--list")[1].splitlines()) == 4

    assert audit(broker, capsys, "--put-back", cursor) == (0, f"{cursor} is back\n")
    assert store(broker, "get", cursor) == before
    audit(broker, capsys, "--quarantine")

    folder = tmp_path / "copies"
    _, text = audit(broker, capsys, "--delete", str(folder))
    assert text.count(" stays: ") == 4, text
    assert audit(broker, capsys, "--export", str(folder)) == (0, f"4 copies in {folder}\n")
    copy = json.loads((folder / f"ledger-{leaked}.json").read_text())
    assert [base64.b64decode(one)[-2:] for one in copy["entries"]] == [b"m%d" % number for number in range(5)]
    _, text = audit(broker, capsys, "--delete", str(folder))
    assert text.count(" deleted") == 4, text
    assert store(broker, "get", ledger_key(leaked)) is None
    assert audit(broker, capsys, "--read-ledgers") == (0, "no findings; nothing was changed\n")
    assert store(broker, "children", "/admin/quarantine") == []
    assert store(broker, "get", ledger_key(kept)) is not None


def test_leaked_ledger_that_its_writer_left_open_is_closed_and_exported(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One such ledger ended the export of all leaks, and nothing ever closed it."""
    _, leaked = plant(broker)
    path = f"/admin/v2/magnetar/ledgers/{leaked}"
    value = store(broker, "get", ledger_key(leaked))
    assert isinstance(value, bytes)
    opened = replace(decode(value), state=LedgerState.OPEN, length=0, last_entry_id=-1)
    store(broker, "put", ledger_key(leaked), encode(opened))
    assert status(broker, "GET", f"{path}/entries") == 412, "only one in quarantine is closed"
    audit(broker, capsys, "--quarantine")
    assert audit(broker, capsys, "--export", str(tmp_path))[0] == 0
    copy = json.loads((tmp_path / f"ledger-{leaked}.json").read_text())
    assert [base64.b64decode(one)[-2:] for one in copy["entries"]] == [b"m%d" % number for number in range(5)]
    assert f"{leaked} deleted" in audit(broker, capsys, "--delete", str(tmp_path))[1]
    assert store(broker, "get", ledger_key(leaked)) is None


def test_young_ledger_is_left_out_and_metrics_show_an_orphan_of_age(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ledger whose reference was still to be written looked like an orphan, and `--quarantine` took it."""
    ledger_id, now_ms = 900_001, time.time_ns() // 1_000_000
    custom = {"application": b"pulsar", "component": b"managed-ledger"}
    young = LedgerMetadata((LedgerSegment(("b:1",)),), created_ms=now_ms - 60_000, custom=custom)
    store(broker, "put", ledger_key(ledger_id), encode(young))
    code, text = audit(broker, capsys)
    left_out = "1 younger than 86400 s are left out; --grace-seconds 0 shows them\n"
    assert (code, text) == (0, f"{left_out}no findings; nothing was changed\n")
    metrics = scraped(broker)
    assert re.search(r'^magnetar_audit_findings\{class="orphan",cluster="\w+"\} 0.0$', metrics, re.M)
    assert float(re.findall(r"^magnetar_audit_time_seconds\{.*\} (\S+)$", metrics, re.M)[0]) * 1000 >= now_ms

    assert f"ledgers  orphan  {ledger_id}" in audit(broker, capsys, "--grace-seconds", "59")[1]
    old = replace(young, created_ms=now_ms - 86_400_000)
    store(broker, "put", ledger_key(ledger_id), encode(old))
    assert f"ledgers  orphan  {ledger_id}" in audit(broker, capsys)[1]
    assert re.search(r'^magnetar_audit_findings\{class="orphan",cluster="\w+"\} 1.0$', scraped(broker), re.M)
    store(broker, "delete", ledger_key(ledger_id))


def scraped(broker: BrokerProcess) -> str:
    with urllib.request.urlopen(f"{broker.admin_url}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"findings": 3}', b'{"findings": {"orphan": -1}}', b'{"findings": {"A b": 1}}'],
)
def test_result_that_no_audit_has_is_refused(broker: BrokerProcess, body: bytes) -> None:
    before = re.findall("^magnetar_audit_.*$", scraped(broker), re.M)
    assert status(broker, "POST", "/admin/v2/magnetar/audit", body) == 400
    assert re.findall("^magnetar_audit_.*$", scraped(broker), re.M) == before


def test_topic_whose_name_ends_like_a_partition_is_no_leak(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers take a number with leading zeros for a part of the name; the audit quarantined the list of such a topic."""
    client = connect(broker.url)
    client.create_producer("persistent://public/default/day-partition-003").send(b"m")
    client.close()
    assert "day-partition-003" not in audit(broker, capsys)[1]


def test_ledger_of_the_health_check_is_no_finding(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Monitors ask for it every few seconds, so the audit of a healthy cluster always had a finding."""
    assert status(broker, "GET", "/admin/v2/brokers/health") == 200
    assert "unknown-owner" not in audit(broker, capsys)[1]


def test_schema_of_a_non_persistent_topic_in_use_is_no_leak(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """The path of a schema does not tell its topic's domain; the audit quarantined schemas that producers use."""
    assert status(broker, "PUT", "/admin/v2/non-persistent/public/default/parts/partitions", b"2") == 204
    client = connect(broker.url)
    schema = pulsar.schema.StringSchema()
    producers = [
        client.create_producer(f"non-persistent://public/default/{name}", schema=schema)
        for name in ("volatile", "parts")
    ]
    before = audit(broker, capsys, "--quarantine")[1]
    for producer in producers:
        producer.send("m")
    client.close()
    assert "volatile" not in before
    assert "/parts" not in before


@pytest.mark.parametrize("end", ["0", "7", "10", "00", "003", "x", "", "-1", "1x", "99999999999", "\u0663"])
def test_rule_and_brokers_agree_which_names_are_partitions(end: str) -> None:
    name = f"persistent://public/default/t-partition-{end}"
    match = re.match(PARTITION, name)
    partition = parse_topic_name(name).partition
    # Beyond Java's int Apache's brokers have plain topics, ours have none of either kind.
    assert (match is None) == (partition < 0 or partition >= 2**31)
    assert match is None or (match[1], int(match[2])) == ("persistent://public/default/t", partition)


def test_ledger_that_a_list_names_is_never_deleted(broker: BrokerProcess) -> None:
    client = connect(broker.url)
    ledger_id = client.create_producer("persistent://public/default/needed").send(b"x").ledger_id()
    client.close()
    path = f"/admin/v2/magnetar/ledgers/{ledger_id}"
    assert status(broker, "DELETE", path) == 412, "not in quarantine"
    store(broker, "put", ledger_record_key(ledger_id), b'{"since":1,"reason":"by hand"}')
    assert status(broker, "DELETE", path) == 412, "its list names it"
    assert store(broker, "get", ledger_key(ledger_id)) is not None
    store(broker, "delete", ledger_record_key(ledger_id))
    assert status(broker, "DELETE", "/admin/v2/magnetar/ledgers/999999") == 404
    assert status(broker, "GET", "/admin/v2/magnetar/ledgers/999999/entries") == 404
    assert status(broker, "GET", f"{path}/entries?first=-1") == 400


def test_orphan_stays_out_of_quarantine_while_a_node_that_may_name_it_cannot_be_read(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect(broker.url)
    topic = "persistent://public/default/unreadable"
    ledger_id = client.create_producer(topic).send(b"x").ledger_id()
    client.close()
    key = f"{LIST}unreadable"
    assert status(broker, "PUT", "/admin/v2/persistent/public/default/unreadable/unload") == 204
    value = store(broker, "get", key)
    assert isinstance(value, bytes)
    store(broker, "put", key, b"{")
    _, text = audit(broker, capsys, "--quarantine")
    assert f"{ledger_id} stays: 1 nodes could not be read" in text
    assert store(broker, "get", ledger_record_key(ledger_id)) is None
    store(broker, "put", key, value)
    assert audit(broker, capsys) == (0, "no findings; nothing was changed\n")
