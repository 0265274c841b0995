"""Runs `commands.txt` with Apache's command-line tools against one broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

COMMANDS = Path(__file__).with_name("commands.txt")
SESSION_TIMEOUT_S = 900
TOOL_TIMEOUT_S = 120
SMALL_JVM = "-Xms128m -Xmx512m -XX:MaxDirectMemorySize=512m"
"""Memory of pulsar-perf, which takes several GiB otherwise."""
# Not at the beginning of a line: some commands end their output without a line's end.
_HEAD = re.compile(r"\[\d+/\d+\] Executing ((?:admin|client) .*)$", re.MULTILINE)
_REFUSED = re.compile(
    r"^(Reason: |HTTP [45]\d\d|.*Exception|Usage: |Missing required|Unknown option)", re.MULTILINE
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = re.compile(r"^\[\d+/\d+\] \S .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command's end."""

    command: str
    """The command, with the tool's short name in front."""
    output: str
    """Text that the command printed."""

    @property
    def works(self) -> bool:
        """True unless the broker or the tool refused the command."""
        return _REFUSED.search(self.output) is None

    @property
    def reason(self) -> str:
        """The broker's words in a refusal."""
        lines = [line for line in self.output.splitlines() if line.startswith("Reason: ")]
        return lines[-1].removeprefix("Reason: ") if lines else self.output.partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Broker:
    """Addresses of a broker, and the name under which it is listed."""

    admin_url: str
    """Such as http://127.0.0.1:8080."""
    pulsar_url: str
    """Such as pulsar://127.0.0.1:6650; the broker tells it."""
    name: str
    """Its id, such as 127.0.0.1:8080."""

    @classmethod
    def at(cls, admin_url: str) -> Broker:
        """Asks the broker for its other addresses. Raises OSError when it does not answer."""
        leader = _get(f"{admin_url}/admin/v2/brokers/leaderBroker")
        cluster = _get(f"{admin_url}/admin/v2/clusters/standalone")
        return cls(admin_url, cluster["brokerServiceUrl"], leader["brokerId"])


def _get(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def run(pulsar_home: Path, broker: Broker) -> list[Outcome]:
    """Runs the session against one broker."""
    lines = [line for line in COMMANDS.read_text("utf-8").splitlines() if not line.startswith("#")]
    commands = "\n".join(lines).replace("{broker}", broker.name).splitlines()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment(Path(folder), broker)
        for tool, part in groupby(commands, lambda line: line.partition(" ")[0] in ("---", "perf")):
            if tool:
                outcomes += [_run_perf(pulsar_home, environment, line) for line in part if line != "---"]
            else:
                outcomes += _run_shell(pulsar_home, environment, Path(folder, "session.txt"), list(part))
    return outcomes


def _environment(folder: Path, broker: Broker) -> dict[str, str]:
    conf = folder / "client.conf"
    conf.write_text(f"webServiceUrl={broker.admin_url}\nbrokerServiceUrl={broker.pulsar_url}\n", "utf-8")
    return {
        **os.environ,
        "PULSAR_CLIENT_CONF": str(conf),
        "PULSAR_LOG_DIR": str(folder),
        # The shell keeps files in the user's folder.
        "PULSAR_EXTRA_OPTS": f"-Duser.home={folder}",
    }


def _run_shell(
    pulsar_home: Path, environment: dict[str, str], script: Path, part: list[str]
) -> list[Outcome]:
    script.write_text("".join(f"{command}\n" for command in part), "utf-8")
    command = [str(pulsar_home / "bin" / "pulsar-shell"), "--no-progress", "--filename", str(script)]
    text = _COLOURS.sub("", _output(command, environment, SESSION_TIMEOUT_S))
    parts = _HEAD.split(text)
    found = [
        Outcome(one.strip(), _SUMMARY.sub("", output).strip())
        for one, output in zip(parts[1::2], parts[2::2], strict=True)
    ]
    if len(found) != len(part):
        sys.exit(f"pulsar-shell ran {len(found)} of {len(part)} commands:\n{text[-2000:]}")
    return found


def _run_perf(pulsar_home: Path, environment: dict[str, str], line: str) -> Outcome:
    # The shell has no pulsar-perf, so each of its commands starts a JVM.
    command = [str(pulsar_home / "bin" / "pulsar-perf"), *line.split()[1:]]
    settings = {**environment, "PULSAR_MEM": SMALL_JVM, "PULSAR_GC": "-XX:+UseParallelGC"}
    return Outcome(line, _output(command, settings, TOOL_TIMEOUT_S).strip())


def _output(command: list[str], environment: dict[str, str], timeout_s: int) -> str:
    ended = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return ended.stdout
