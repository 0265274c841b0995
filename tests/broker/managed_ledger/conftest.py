"""Fixtures of the tests of managed ledgers and cursors."""

from __future__ import annotations

import pytest

from tests.broker.managed_ledger.ledger_fakes import World


@pytest.fixture
async def world() -> World:
    return World()
