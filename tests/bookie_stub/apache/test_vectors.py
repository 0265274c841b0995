"""The recordings of Apache's bookie as part of the suite: frames and a stored state."""

from __future__ import annotations

import pytest

from tests.vectors import bookie
from tests.vectors.explained import EXPLAINED_BOOKIE
from tests.vectors.folder import vectors_folder


@pytest.mark.parametrize("name", ["wire-v2.jsonl", "wire-v3.jsonl", "state-a/manifest.json"])
def test_recordings_of_apache_bookie_are_answered_alike(name: str) -> None:
    path = vectors_folder() / "bookie" / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    result = bookie.run_file(path)
    assert not result.failed, result.messages
    assert result.passed > 15
    # What is explained still differs, and nothing else is said.
    expected = [
        f"explained: {script}: {reason}"
        for script, reason in EXPLAINED_BOOKIE.items()
        if script.startswith(name[5:7] + "-")
    ]
    assert sorted(result.messages) == sorted(expected)
