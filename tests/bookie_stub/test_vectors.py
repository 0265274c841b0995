"""The recordings of Apache's bookie as part of the suite: frames and a stored state."""

from __future__ import annotations

import asyncio

import pytest

from tests.vectors import bookie
from tests.vectors.explained import EXPLAINED_BOOKIE
from tests.vectors.folder import vectors_folder


@pytest.mark.parametrize("name", ["wire-v2.jsonl", "state-a/manifest.json"])
def test_recorded(name: str) -> None:
    path = vectors_folder() / "bookie" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    result = bookie.run_file(path)
    assert not result.failed, result.messages
    assert result.passed > 15


def test_what_is_explained_still_differs() -> None:
    path = vectors_folder() / "bookie/wire-v2.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    messages = asyncio.run(bookie._run_wire(path)).messages
    assert not [message for message in messages if "passes, though" in message]
    assert len(messages) == len(EXPLAINED_BOOKIE)
