"""What a broker imports before clients can connect: each module lengthens the start by a third of a millisecond or more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
AFTER_READY = (
    "bookie_stub.cluster.zookeeper_ledgers",
    "broker.compaction.worker_process",
    "broker.console",
    "entry_cache.policies.magnetar.magnetar",
    "entry_cache.policies.stash",
    "broker.faults",
    "broker.metrics",
    "broker.recorder.recorder",
    "broker.schemas.compatibility",
    "broker.schemas.definitions",
    "broker.security.authentication.make",
    "broker.service.compaction.compaction_run",
    "broker.websocket",
    "http.server",
    "importlib.metadata",
    "re2",
    "tempfile",
)
"""Needed for metrics and the console, by a setting that is not set, by a rare request, or by nothing.

Absent when the ready file is written."""
FOR_ADMIN = ("aiohttp", "broker.admin", "broker.console.routes", "prometheus_client")
"""Imported at the first connection to the admin port: 15 MiB, which a broker without one does not spend."""
MODULES_MAX = 700
"""Of Python, of libraries and of ours. 848 before any room was imported late."""
_PROGRAM = """
import asyncio, json, os, sys
import magnetar.process.standalone as process
from broker.compose.broker_service import BrokerService

def show():
    print(json.dumps([name for name, module in sys.modules.items() if module is not None]), flush=True)

def announce(*of_broker):
    show()

async def start_admin(service):
    await start(service)
    for _ in range(20):  # The first steps of the tasks that count and serve.
        await asyncio.sleep(0)
    show()
    import urllib.request
    with await asyncio.to_thread(urllib.request.urlopen, service.addresses.admin_url + "/admin/v2/clusters") as answer:
        assert answer.status == 200
    show()
    os._exit(0)

process._announce, start, BrokerService.start_admin = announce, BrokerService.start_admin, start_admin
from magnetar.__main__ import main
sys.exit(main(["standalone", "--data", sys.argv[1], "--set", "brokerServicePort=0", "--set", "webServicePort=0"]))
"""


def _of(rooms: tuple[str, ...], imported: list[str]) -> list[str]:
    return [
        name for name in imported if name in rooms or name.startswith(tuple(f"{room}." for room in rooms))
    ]


def test_start_imports_neither_the_admin_port_nor_unused_parts_before_clients_can_connect(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "data")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    at_ready, started, asked = (json.loads(line) for line in done.stdout.splitlines())
    assert "broker.net.server_cnx" in at_ready
    assert _of((*AFTER_READY, *FOR_ADMIN), at_ready) == []
    assert len(at_ready) <= MODULES_MAX, len(at_ready)
    assert "broker.console.hub" in started
    assert _of(FOR_ADMIN, started) == []
    assert "aiohttp.web" in asked
