"""Every recorded answer to a role against a broker process of our own, one test per id."""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path

import pytest

from tests.vectors import authz
from tests.vectors.explained_authz import EXPLAINED_COMMANDS, EXPLAINED_ROLES
from tests.vectors.folder import find_vectors_folder

COMPATIBILITY = Path(__file__).resolve().parents[1] / "docs" / "compatibility.md"


def _ids() -> list[tuple[Path, str]]:
    folder = find_vectors_folder()
    files = sorted((folder / "authz").glob("*.jsonl")) if folder else []
    found: dict[tuple[Path, str], None] = {}
    for path in files:
        for line in path.read_text("utf-8").splitlines():
            found[path, json.loads(line)["id"]] = None
    return list(found)


@functools.cache
def _verdicts(path: Path) -> dict[str, authz.Verdict]:
    return {one.name: one for one in asyncio.run(authz.play_file(path))}


@pytest.mark.skipif(not _ids(), reason="no golden files; set MAGNETAR_VECTORS")
@pytest.mark.skipif("MAGNETAR_PULSAR_URL" in os.environ, reason="a running broker has settings of its own")
@pytest.mark.parametrize(("path", "name"), [pytest.param(*one, id=one[1]) for one in _ids()])
def test_roles_are_answered_as_recorded(path: Path, name: str) -> None:
    verdict = _verdicts(path)[name]
    if verdict.not_served:
        pytest.xfail("the route is not served yet")
    explained = EXPLAINED_COMMANDS if path.name == "wire.jsonl" else EXPLAINED_ROLES
    reason = explained.get(name)
    if reason is None:
        assert verdict.difference is None
    else:
        assert verdict.difference is not None, f"passes: take it out of explained_authz.py ({reason})"
        pytest.xfail(reason)


def test_explained_answers_stand_on_the_page() -> None:
    page = COMPATIBILITY.read_text(encoding="utf-8")
    missing = [name for name in (*EXPLAINED_ROLES, *EXPLAINED_COMMANDS) if f"`{name}`" not in page]
    assert not missing
