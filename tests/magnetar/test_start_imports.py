"""What a broker imports before clients can connect: each module lengthens the start by a third of a millisecond or more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AFTER_READY = (
    "aiohttp",
    "broker.admin",
    "broker.console",
    "broker.entry_cache.policies.magnetar.magnetar",
    "broker.entry_cache.policies.stash",
    "broker.faults",
    "broker.metrics",
    "broker.recorder.recorder",
    "broker.security.authentication.make",
    "broker.websocket.session",
    "http.server",
    "prometheus_client",
)
"""Needed by the admin port, or by a setting that is not set; imported after the ready file is written."""
MODULES_MAX = 740
"""Of Python, of libraries and of ours. 848 before these rooms were imported late."""
_PROGRAM = """
import os, sys
import magnetar.process.standalone as process

def announce(*of_broker):
    print(*(name for name, module in sys.modules.items() if module is not None), flush=True)
    os._exit(0)

process._announce = announce
from magnetar.__main__ import main
sys.exit(main(["standalone", "--data", sys.argv[1], "--set", "brokerServicePort=0", "--set", "webServicePort=0"]))
"""


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
    imported = done.stdout.split()
    assert "broker.net.server_cnx" in imported
    late = [name for name in imported if name.startswith(tuple(f"{late}." for late in AFTER_READY))]
    assert late + [name for name in imported if name in AFTER_READY] == []
    assert len(imported) <= MODULES_MAX, len(imported)
