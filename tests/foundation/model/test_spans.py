"""Times as people say them."""

from __future__ import annotations

import pytest

from foundation.model.spans import span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "under 1 ms"),
        (0.0009, "under 1 ms"),
        (0.001, "1 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (723, "12 min 3 s"),
        (3599, "59 min 59 s"),
        (3599.7, "1 h"),
        (18_720, "5 h 12 min"),
        (86_400, "1 d"),
        (86_400 * 3 + 4 * 3600 + 59 * 60, "3 d 4 h"),
    ],
)
def test_span_is_written_in_words(seconds: float, text: str) -> None:
    assert span(seconds) == text
