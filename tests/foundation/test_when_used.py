"""Parts that the first use makes, in owners with slots."""

from __future__ import annotations

from foundation.seldom import when_used

MADE = list[str]()


def made_for(owner: Owner) -> list[str]:
    MADE.append(owner.name)
    return [owner.name]


class Owner:
    __slots__ = ("known_part", "name")

    part: list[str] = when_used("known_part", made_for)

    def __init__(self, name: str) -> None:
        self.name = name
        self.known_part: list[str] | None = None


def test_part_is_made_by_its_first_use_and_kept() -> None:
    one, other = Owner("one"), Owner("other")
    assert MADE == []
    assert one.part is one.part
    assert (MADE, one.known_part, other.known_part) == (["one"], ["one"], None)
    assert other.part == ["other"]
