"""Time that tests of this folder do not wait for."""

from __future__ import annotations

import pytest

from broker.service.lifecycle import dormancy


@pytest.fixture(autouse=True)
def _no_wait_for_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a request or a round has is looked at again in the next turns of the loop."""
    monkeypatch.setattr(dormancy, "PASSING_S", 0)
    monkeypatch.setattr(dormancy, "PASSING_LOOKS", 3)
