"""Every recorded wire scenario against a broker process of our own, one test per scenario."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path

import pytest

from tests.support.raw_client import build_command, simple_frame
from tests.vectors import wire
from tests.vectors.explained import EXPLAINED, EXPLAINED_BOOKIE, EXPLAINED_REQUESTS
from tests.vectors.folder import find_vectors_folder

ON_ONE_CONNECTION = ("subscribe-failover-partition", "schema-types")
TOPICS_OF_SEVERAL = pytest.mark.one_broker("one connection uses topics of several bundles")
COMPATIBILITY = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"


def _scenarios() -> list[tuple[Path, str]]:
    folder = find_vectors_folder()
    files = sorted((folder / "wire").glob("*.jsonl")) if folder else []
    return [(path, str(one["scenario"])) for path in files for one in wire.read_scenarios(path)]


@functools.cache
def _verdicts(path: Path) -> dict[str, str | None]:
    """All of a file at one go: the scenarios share one broker and run side by side."""
    return {one.scenario: one.difference for one in asyncio.run(wire.play_file(path))}


@pytest.mark.skipif(not _scenarios(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.skipif("MAGNETAR_PULSAR_URL" in os.environ, reason="a running broker has settings of its own")
@pytest.mark.parametrize(
    ("path", "scenario"),
    [
        pytest.param(*one, id=one[1], marks=TOPICS_OF_SEVERAL if one[1] in ON_ONE_CONNECTION else ())
        for one in _scenarios()
    ],
)
def test_frames_are_answered_as_recorded(path: Path, scenario: str) -> None:
    difference = _verdicts(path)[scenario]
    reason = EXPLAINED.get(scenario)
    if reason is None:
        assert difference is None
    else:
        assert difference is not None, f"passes: take it out of EXPLAINED ({reason})"
        pytest.xfail(reason)


def test_each_explained_difference_is_described() -> None:
    text = COMPATIBILITY.read_text(encoding="utf-8")
    missing = [
        name for name in [*EXPLAINED, *EXPLAINED_REQUESTS, *EXPLAINED_BOOKIE] if f"`{name}`" not in text
    ]
    assert missing == []


def test_difference_is_named_by_scenario_step_and_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replayer against a broker that answers one field wrong."""
    frame = {"conn": "A", "type": "PONG", "fields": {}, "hex": ""}
    success = {"conn": "A", "type": "SUCCESS", "fields": {"request_id": 7}, "hex": ""}
    script = {
        "scenario": "one",
        "profile": "default",
        "steps": [{"open": "A"}, {"send": frame}, {"expect": success}],
    }
    path = tmp_path / "script.jsonl"
    path.write_text(json.dumps(script), encoding="utf-8")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(simple_frame(build_command("SUCCESS", {"request_id": 8})))
        await writer.drain()

    async def play() -> list[wire.Verdict]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("MAGNETAR_PULSAR_URL", f"pulsar://127.0.0.1:{port}")
            monkeypatch.setenv("MAGNETAR_ADMIN_URL", f"http://127.0.0.1:{port}")
            return await wire.play_file(path)

    (verdict,) = asyncio.run(play())
    assert verdict.difference == "step 2 (expect A SUCCESS): request_id: want 7, got 8"
