"""Runs `commands.txt`, or `cluster_commands.txt` on two brokers, with Apache's command-line tools."""

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
CLUSTER_COMMANDS = Path(__file__).with_name("cluster_commands.txt")
SESSION_TIMEOUT_S = 900
TOOL_TIMEOUT_S = 120
SMALL_JVM = "-Xms128m -Xmx512m -XX:MaxDirectMemorySize=512m"
"""Memory of pulsar-perf, which takes several GiB otherwise."""
SCHEMA = '{"type": "JSON", "schema": "{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[]}", "properties": {}}'
"""What `{schema}` holds."""
# Not at the beginning of a line: some commands end their output without a line's end.
_HEAD = re.compile(r"\[\d+/\d+\] Executing (?:admin|client) .*$", re.MULTILINE)
_REFUSED = re.compile(
    r"^(Reason: |HTTP [45]\d\d|.*Exception|Usage: |Missing required|Unknown option)", re.MULTILINE
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = re.compile(r"^\[\d+/\d+\] \S .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command's end."""

    command: str
    """The command as its file has it, with the tool's short name in front."""
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
    """Addresses of a broker, and the name under which it is listed; of a cluster the leader."""

    admin_url: str
    """Such as http://127.0.0.1:8080."""
    pulsar_url: str
    """Such as pulsar://127.0.0.1:6650; the broker tells it."""
    name: str
    """Its id, such as 127.0.0.1:8080."""
    cluster: str = "standalone"
    """Name of its cluster."""
    other: Broker | None = None
    """The second broker of a cluster of two; None for a broker alone."""

    @classmethod
    def at(cls, admin_url: str) -> Broker:
        """Asks the broker for its other addresses. Raises OSError when it does not answer."""
        leader = _get(f"{admin_url}/admin/v2/brokers/leaderBroker")
        cluster = _get(f"{admin_url}/admin/v2/clusters/standalone")
        return cls(admin_url, cluster["brokerServiceUrl"], leader["brokerId"])

    @classmethod
    def leader_at(cls, admin_url: str) -> Broker:
        """Returns the leader of a cluster of two, as one of them tells. Raises OSError or ValueError."""
        leader = _get(f"{admin_url}/admin/v2/brokers/leaderBroker")["brokerId"]
        with urllib.request.urlopen(f"{admin_url}/admin/v2/brokers", timeout=30) as answer:
            names: list[str] = json.load(answer)
        with urllib.request.urlopen(f"{admin_url}/admin/v2/clusters", timeout=30) as answer:
            clusters: list[str] = json.load(answer)
        (cluster,) = (one for one in clusters if one != "global")
        (other,) = (one for one in names if one != leader)
        return cls._of_cluster(leader, cluster, cls._of_cluster(other, cluster, None))

    @classmethod
    def _of_cluster(cls, name: str, cluster: str, other: Broker | None) -> Broker:
        url = f"http://{name}"
        return cls(
            url, _get(f"{url}/admin/v2/broker-stats/load-report")["pulsarServiceUrl"], name, cluster, other
        )

    @property
    def members(self) -> dict[str, Broker]:
        """The brokers by the names that commands have for them."""
        return {"broker": self} if self.other is None else {"leader": self, "other": self.other}


def _get(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def run(pulsar_home: Path, broker: Broker) -> list[Outcome]:
    """Runs the session against one broker, or a cluster of two."""
    path = COMMANDS if broker.other is None else CLUSTER_COMMANDS
    commands = [line for line in path.read_text("utf-8").splitlines() if not line.startswith("#")]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        environment = _environment(Path(folder), broker)
        for tool, part in groupby(commands, lambda line: line.partition(" ")[0] in ("---", "perf")):
            if tool:
                outcomes += [_run_perf(pulsar_home, environment, line) for line in part if line != "---"]
            else:
                outcomes += _run_shell(pulsar_home, environment, Path(folder), broker, list(part))
    return outcomes


def _environment(folder: Path, broker: Broker) -> dict[str, str]:
    conf = folder / "client.conf"
    asked = broker.other or broker
    conf.write_text(f"webServiceUrl={asked.admin_url}\nbrokerServiceUrl={asked.pulsar_url}\n", "utf-8")
    (folder / "schema.json").write_text(SCHEMA, "utf-8")
    return {
        **os.environ,
        "PULSAR_CLIENT_CONF": str(conf),
        "PULSAR_LOG_DIR": str(folder),
        # The shell keeps files in the user's folder.
        "PULSAR_EXTRA_OPTS": f"-Duser.home={folder}",
    }


def expanded(command: str, broker: Broker, folder: Path) -> str:
    """Returns a command of the file with the names and addresses of these brokers."""
    tool, _, words = command.partition(" ")
    tool, _, asked = tool.partition("@")
    if asked:
        words = f"--admin-url {broker.members[asked].admin_url} {words}"
    for name, member in broker.members.items():
        words = words.replace(f"{{{name}}}", member.name)
        words = words.replace(f"{{{name}.host}}", member.name.rpartition(":")[0])
    words = words.replace("{cluster}", broker.cluster).replace("{schema}", str(folder / "schema.json"))
    return f"{tool} {words}"


def _run_shell(
    pulsar_home: Path, environment: dict[str, str], folder: Path, broker: Broker, part: list[str]
) -> list[Outcome]:
    script = folder / "session.txt"
    script.write_text("".join(f"{expanded(one, broker, folder)}\n" for one in part), "utf-8")
    command = [str(pulsar_home / "bin" / "pulsar-shell"), "--no-progress", "--filename", str(script)]
    text = _COLOURS.sub("", _output(command, environment, SESSION_TIMEOUT_S))
    outputs = _HEAD.split(text)[1:]
    if len(outputs) != len(part):
        sys.exit(f"pulsar-shell ran {len(outputs)} of {len(part)} commands:\n{text[-2000:]}")
    return [Outcome(one, _SUMMARY.sub("", output).strip()) for one, output in zip(part, outputs, strict=True)]


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
