"""Runs every command of some groups of Apache's `pulsar-admin` against a broker, and against another one beside it.

    python -m bench.pulsar_admin PULSAR_HOME ADMIN_URL [--against ADMIN_URL] [--out FILE]

PULSAR_HOME is an unpacked Apache Pulsar 4.0 or later. All commands of `commands.txt` run in one `pulsar-shell`, because
a JVM for each would take minutes. The session creates the tenant `shop` and the cluster `west`, needs
`forceDeleteNamespaceAllowed=true` and `forceDeleteTenantAllowed=true` for its last commands, and ends the broker.

Prints how many commands work by group, then each one that is refused; with `--against` also those whose outcomes differ.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

COMMANDS = Path(__file__).with_name("commands.txt")
SESSION_TIMEOUT_S = 900
# Not at the beginning of a line: some commands end their output without a line's end.
_HEAD = re.compile(r"\[(\d+)/\d+\] Executing admin (.*)$", re.MULTILINE)
_REFUSED = re.compile(
    r"^(Reason: |HTTP [45]\d\d|.*Exception|Usage: |Missing required|Unknown option)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One command's end."""

    command: str
    """The command without the tool's name."""
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


def run(pulsar_home: Path, admin_url: str) -> list[Outcome]:
    """Runs the session against one broker."""
    with urllib.request.urlopen(f"{admin_url}/admin/v2/brokers/leaderBroker", timeout=30) as answer:
        broker = json.load(answer)["brokerId"]
    lines = [line for line in COMMANDS.read_text("utf-8").splitlines() if not line.startswith("#")]
    outcomes: list[Outcome] = []
    for part in "\n".join(lines).format(broker=broker).split("\n---\n"):
        outcomes += _run_shell(pulsar_home, admin_url, part.splitlines())
    return outcomes


def _run_shell(pulsar_home: Path, admin_url: str, commands: list[str]) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        script, conf = Path(folder, "session.txt"), Path(folder, "client.conf")
        script.write_text("".join(f"admin {command}\n" for command in commands), "utf-8")
        # The port of messages is never used by these commands, but the shell wants an address.
        conf.write_text(f"webServiceUrl={admin_url}\nbrokerServiceUrl=pulsar://localhost:6650\n", "utf-8")
        environment = {
            **os.environ,
            "PULSAR_CLIENT_CONF": str(conf),
            "PULSAR_LOG_DIR": folder,
            # The shell keeps files in the user's folder.
            "PULSAR_EXTRA_OPTS": f"-Duser.home={folder}",
        }
        session = subprocess.run(
            [pulsar_home / "bin" / "pulsar-shell", "--no-progress", "--filename", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SESSION_TIMEOUT_S,
            check=False,
        )
    parts = _HEAD.split(session.stdout)
    found = [
        Outcome(command.strip(), output.strip())
        for command, output in zip(parts[2::3], parts[3::3], strict=True)
    ]
    if len(found) != len(commands):
        sys.exit(f"pulsar-shell ran {len(found)} of {len(commands)} commands:\n{session.stdout[-2000:]}")
    return found


def report(outcomes: list[Outcome], others: list[Outcome] | None) -> str:
    """Returns tables: counts by group, refused commands, and differences from the other broker."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.command.split()[0]].append(outcome)
    lines = ["| group | commands | work |", "|---|---|---|"]
    for group, members in groups.items():
        lines.append(f"| {group} | {len(members)} | {sum(one.works for one in members)} |")
    lines.append(f"| all | {len(outcomes)} | {sum(one.works for one in outcomes)} |")
    lines += ["", "| refused | reason |", "|---|---|"]
    lines += [f"| `{one.command}` | {one.reason[:160]} |" for one in outcomes if not one.works]
    if others is not None:
        lines += ["", "| differs | here | there |", "|---|---|---|"]
        for here, there in zip(outcomes, others, strict=False):
            if here.works != there.works:
                lines.append(f"| `{here.command}` | {here.reason[:80]} | {there.reason[:80]} |")
    return "\n".join(lines)


def main() -> int:
    """Runs the sessions and prints the report."""
    parser = argparse.ArgumentParser(
        "python -m bench.pulsar_admin", description="Try pulsar-admin's commands."
    )
    parser.add_argument("pulsar_home", type=Path, help="folder of an unpacked Apache Pulsar")
    parser.add_argument("admin_url", help="admin address of the broker, such as http://localhost:8080")
    parser.add_argument("--against", help="admin address of another broker to compare with")
    parser.add_argument("--out", type=Path, help="file for the outputs of all commands, side by side")
    arguments = parser.parse_args()
    outcomes = run(arguments.pulsar_home, arguments.admin_url)
    others = run(arguments.pulsar_home, arguments.against) if arguments.against else None
    print(report(outcomes, others))
    if arguments.out is not None:
        sides = zip(outcomes, others or outcomes, strict=False)
        arguments.out.write_text(
            "\n".join(f"$ {one.command}\n{one.output}\n--\n{two.output}\n" for one, two in sides), "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
