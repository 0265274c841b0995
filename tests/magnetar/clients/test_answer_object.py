"""Members of answers: those of another type than asked for are refused where they are read."""

from __future__ import annotations

import pytest

from foundation.value import Json
from magnetar.clients.answer_object import AnswerObject

FOUND = AnswerObject(
    {
        "name": "a",
        "count": 3,
        "ratio": None,
        "rows": [{"name": "b"}],
        "none": None,
        "by": {"ttl": {"name": "c"}},
    }
)


def test_members_are_returned_by_name_and_type() -> None:
    assert (FOUND.text("name"), FOUND.number("count"), FOUND.number("ratio"), FOUND.amount("ratio")) == (
        "a",
        3,
        None,
        0,
    )
    assert [row.text("name") for row in FOUND.each("rows")] == ["b"]
    assert [(name, one.text("name")) for name, one in FOUND.named("by")] == [("ttl", "c")]


def test_null_is_no_object_and_an_empty_array() -> None:
    assert FOUND.inner("none") is None
    assert (FOUND.list("none"), [*FOUND.each("none")], [*FOUND.named("none")]) == ([], [], [])


@pytest.mark.parametrize("ask", [FOUND.text, FOUND.list, FOUND.inner])
def test_member_of_another_type_is_refused(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(TypeError):
        ask("count")


def test_text_is_no_number() -> None:
    with pytest.raises(TypeError):
        FOUND.number("name")


def test_missing_member_is_refused() -> None:
    with pytest.raises(KeyError):
        FOUND.text("missing")


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_only_an_object_has_members(value: Json) -> None:
    with pytest.raises(TypeError):
        AnswerObject(value)
