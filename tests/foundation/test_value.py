"""Values are frozen dataclasses, whose methods come from one base."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace

import pytest

from foundation.value import Value


class Size(Value):
    label: str
    width: int = 7
    marks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ValueError(f"width is negative: {self.width}")


class Heavy(Size, kw_only=True):
    weight: float = 0.5


@dataclass(frozen=True)
class Plain:
    label: str
    width: int = 7
    marks: tuple[int, ...] = ()


def test_value_takes_its_fields_by_place_by_name_and_by_default() -> None:
    assert vars(Size("l")) == {"label": "l", "width": 7, "marks": []}
    assert vars(Heavy("l", 8, weight=1.5)) == {"label": "l", "width": 8, "marks": [], "weight": 1.5}
    assert Size("l").marks is not Size("l").marks


def test_value_compares_and_shows_its_fields_as_a_dataclass_does() -> None:
    one = Size("l", marks=())  # type: ignore[arg-type]
    assert one == replace(one) == Size("l", 7, ())  # type: ignore[arg-type]
    assert one != replace(one, width=8)
    assert Size("l") != Heavy("l")
    assert hash(one) == hash(pickle.loads(pickle.dumps(one))) == hash(Plain("l"))
    assert repr(one) == repr(Plain("l")).replace("Plain", "Size")
    assert asdict(one) == asdict(Plain("l"))


def test_value_never_changes() -> None:
    with pytest.raises(FrozenInstanceError, match="width"):
        Size("l").width = 8  # type: ignore[misc]


def test_value_is_checked_when_it_is_made_and_replaced() -> None:
    with pytest.raises(ValueError, match="width is negative: -1"):
        Size("l", -1)
    with pytest.raises(ValueError, match="width is negative: -1"):
        replace(Heavy("l"), width=-1)


@pytest.mark.parametrize(
    ("values", "given"),
    [((), {}), (("l",), {"label": "m"}), (("l",), {"sizes": 7}), (range(4), {})],
    ids=["missing", "twice", "unknown", "too many"],
)
def test_value_refuses_fields_that_it_lacks_or_has_twice(
    values: tuple[object, ...], given: dict[str, object]
) -> None:
    with pytest.raises(TypeError, match=r"^Size "):
        Size(*values, **given)  # type: ignore[arg-type]


def test_value_refuses_a_field_by_place_when_it_is_given_by_name_only() -> None:
    with pytest.raises(TypeError, match=r"^Heavy "):
        Heavy("l", 7, [], 0.5)  # type: ignore[call-arg]
