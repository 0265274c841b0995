"""Apache's own `pulsar-admin` and `pulsar-client` in one scripted session of its shell: each command must succeed.

`PULSAR_HOME` names the folder of an Apache Pulsar release; without it the test is skipped. One virtual machine runs all
commands, because its start takes three seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.vectors.broker_process import BrokerProcess

pytestmark = [pytest.mark.peer, pytest.mark.slow]

COMMANDS = Path(__file__).with_name("pulsar_admin_topics.txt")
SESSION_S = 150
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BEGIN = re.compile(r"\[\d+/\d+\] Executing (.*)")
_SUMMARY = re.compile(r"\[\d+/\d+\] \S ")
_FAILURE = re.compile(r"Reason: |HTTP \d+|Exception: |Unmatched |Unknown |Missing required")


def outputs(text: str) -> dict[str, list[str]]:
    """The lines that each command has printed."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _COLOURS.sub("", text).splitlines():
        begin = _BEGIN.match(line)
        if begin is not None:
            lines = found.setdefault(begin[1].strip(), [])
        elif not _SUMMARY.match(line):
            lines.append(line)
    return found


@pytest.mark.timeout(SESSION_S + 60)
def test_session_of_the_shell_succeeds(broker: BrokerProcess, tmp_path: Path) -> None:
    home = os.environ.get("PULSAR_HOME")
    if not home:
        pytest.skip("PULSAR_HOME names no Apache Pulsar release")
    addresses = broker.addresses
    conf = tmp_path / "client.conf"
    conf.write_text(f"webServiceUrl={addresses.admin}\nbrokerServiceUrl={addresses.pulsar}\n")
    ended = subprocess.run(
        [f"{home}/bin/pulsar-shell", "-f", str(COMMANDS)],
        env={
            **os.environ,
            "PULSAR_CLIENT_CONF": str(conf),
            "PULSAR_LOG_DIR": str(tmp_path),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=SESSION_S,
        check=False,
    )
    found = outputs(ended.stdout + ended.stderr)
    wanted = {line.strip() for line in COMMANDS.read_text().splitlines()}
    assert set(found) == wanted
    failed = {command: lines for command, lines in found.items() if _FAILURE.search("\n".join(lines))}
    assert not failed
