"""Every recorded admin request against a broker process of our own, one test per record."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.vectors import rest
from tests.vectors.explained import EXPLAINED_REQUESTS
from tests.vectors.folder import find_vectors_folder

OF_ONE_BROKER: Final = ("brokers-list-all", "brokers-list-missing-cluster")
"""Records whose answer is the list of brokers."""


def _records() -> list[tuple[Path, str]]:
    folder = find_vectors_folder()
    files = sorted((folder / "rest").glob("*.jsonl")) if folder else []
    return [
        (path, json.loads(line)["name"]) for path in files for line in path.read_text("utf-8").splitlines()
    ]


def _marks(name: str) -> Sequence[pytest.MarkDecorator]:
    return [pytest.mark.one_broker("lists the brokers")] if name in OF_ONE_BROKER else []


@functools.cache
def _verdicts(path: Path) -> dict[str, str | None]:
    return {one.scenario: one.difference for one in asyncio.run(rest.play_file(path))}


@pytest.mark.skipif(not _records(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.skipif("MAGNETAR_PULSAR_URL" in os.environ, reason="a running broker has settings of its own")
@pytest.mark.parametrize(
    ("path", "name"), [pytest.param(*one, id=one[1], marks=_marks(one[1])) for one in _records()]
)
def test_admin_requests_are_answered_as_recorded(path: Path, name: str) -> None:
    difference = _verdicts(path)[name]
    reason = EXPLAINED_REQUESTS.get(name)
    if reason is None:
        assert difference is None
    else:
        assert difference is not None, f"passes: take it out of EXPLAINED_REQUESTS ({reason})"
        pytest.xfail(reason)
