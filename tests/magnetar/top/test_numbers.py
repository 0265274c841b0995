"""Numbers in few characters."""

from __future__ import annotations

import pytest

from magnetar.top.numbers import age


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "now"),
        (999, "now"),
        (59_999, "59 s ago"),
        (60_000, "1 min ago"),
        (3_599_999, "59 min ago"),
        (90 * 60_000, "1 h ago"),
    ],
)
def test_age_has_its_largest_whole_unit(ms: float, shown: str) -> None:
    assert age(ms) == shown
