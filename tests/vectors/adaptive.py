"""Replays `adaptive` scripts: the guess after every read loop."""

from __future__ import annotations

from pathlib import Path

from protocol.receive_buffer_sizer import SIZES, ReceiveBufferSizer
from tests.vectors.result import Result
from tests.vectors.scripts import Op, read_scripts


def run_file(path: Path) -> Result:
    result = Result()
    for script in read_scripts(path):
        wrong = first_difference(script)
        if wrong is None:
            result.passed += 1
        else:
            result.failed += 1
            result.messages.append(f"{path.name} {script['name']} {wrong}")
    return result


def first_difference(script: Op) -> str | None:
    if "table" in script:
        return None if script["table"] == list(SIZES) else f"size table: got {SIZES}"
    config = script["config"]
    sizer = ReceiveBufferSizer(config["minimum"], config["initial"], config["maximum"])
    if sizer.guess != script["first_guess"]:
        return f"first guess: expected {script['first_guess']}, got {sizer.guess}"
    for number, cycle in enumerate(script["ops"]):
        for offered, received in cycle["reads"]:
            if sizer.guess != offered:
                return f"op {number}: expected {offered} to be offered, got {sizer.guess}"
            sizer.read(received, offered)
        sizer.loop_ended()
        if sizer.guess != cycle["guess"]:
            return f"op {number} {cycle['reads']}: expected guess {cycle['guess']}, got {sizer.guess}"
    return None
