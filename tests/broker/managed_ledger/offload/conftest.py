"""A world with copies in files for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.managed_ledger.offload.tiered import Tiered


@pytest.fixture
async def tiered(tmp_path: Path) -> Tiered:
    folder = tmp_path / "objects"
    folder.mkdir()
    return Tiered(folder)
