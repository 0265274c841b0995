"""The text of a start: its links answer, and its commands find the broker."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from magnetar.process.greeting import greeting

ROOT = Path(__file__).resolve().parents[3]


def test_greeting_names_no_address_in_its_commands_when_the_ports_are_the_usual_ones() -> None:
    text = greeting("pulsar://localhost:6650", "http://localhost:8080")
    assert "  console   http://localhost:8080/ in a browser\n" in text
    assert ".venv/bin/magnetar produce my-topic -m hello         sends one\n" in text
    assert "--url" not in text


def test_links_of_the_greeting_answer_and_its_commands_find_the_broker_on_other_ports() -> None:
    words = ["standalone", "--memory", "--set", "brokerServicePort=0", "--set", "webServicePort=0"]
    start = [sys.executable, "-m", "magnetar", *words]
    environ = {**os.environ, "MAKELEVEL": "1"}
    with subprocess.Popen(
        start, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as broker:
        assert broker.stdout is not None
        try:
            lines = list(iter(broker.stdout.readline, "Ctrl-C drains and stops.\n"))
            told = dict(line.split(maxsplit=1) for line in lines if line.startswith("  "))
            for name in ("console", "admin", "metrics"):
                with urlopen(told[name].split()[0]) as answer:
                    assert answer.status == 200, name
            assert (ROOT / told["manual"].strip()).is_file()
            commands = [
                shlex.split(line) for line in lines if line.startswith("  .venv/bin/magnetar produce ")
            ]
            (command,) = commands
            sent = [sys.executable, "-m", "magnetar", *command[1:-2]]  # Without "sends one".
            done = subprocess.run(sent, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            (demo,) = (line for line in lines if line.startswith("  make demo "))
            assert f"--admin-url {told['console'].split('/ ')[0]}" in demo
        finally:
            broker.terminate()
