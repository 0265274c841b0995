"""Form: reads a policy's JSON into a typed value, checks its range, and writes it back.

Two steps, because they fail at different times. `read` refuses JSON of another type; it runs for requests and for stored
values. `check` refuses values outside of the policy's range; it runs for requests alone, so that a value which an older
version stored still counts.

Quoted numbers and quoted booleans are accepted, as Pulsar accepts them. Fractions for whole numbers and numbers for
booleans are refused: Pulsar would round or guess without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import Field, field, fields
from typing import Any, Final, Generic, TypeVar, cast

from foundation.model.errors import BrokerError
from foundation.settings.keys import INT_MAX, LONG_MAX
from foundation.value import Json

T = TypeVar("T")
R = TypeVar("R")

_TEXT_SHOWN: Final = 60
_TEXT_MAX: Final = 1 << 20
_FORM: Final = "form"
_NAME: Final = "name"
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class PolicyRefused(BrokerError):
    """The value of a policy is not allowed; nothing was stored."""

    status = 412


class WrongType(PolicyRefused):
    """The JSON has another type than the policy's value."""

    status = 400


class WrongCombination(PolicyRefused):
    """Members of a value exclude each other. Pulsar answers some of these with 400, as this broker does."""

    status = 400


def shown(value: Json) -> str:
    """Returns the value as JSON for an error text, cut to 60 characters."""
    text = json.dumps(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}…"


@contextmanager
def named(name: str) -> Iterator[None]:
    """Puts `name=` in front of the text of a PolicyRefused that is raised in its block."""
    try:
        yield
    except PolicyRefused as error:
        raise type(error)(f"{name}={error}") from None


class Form(Generic[T]):
    """The type, range and JSON of one policy's value."""

    def __init__(self, words: str, **schema: Json) -> None:
        self.words = words
        """The allowed values in words, for error texts and the reference page."""
        self.schema = schema
        """The type in JSON schema, for the description of the admin API."""

    def read(self, value: Json) -> T:
        """Returns the typed value. WrongType for JSON of another type."""
        raise NotImplementedError

    def check(self, value: T) -> None:
        """Raises PolicyRefused for a value outside of the range; accepts every value unless a form says more."""

    def write(self, value: T) -> Json:
        """Returns the value as JSON, for the store and for answers."""
        return [*value] if isinstance(value, tuple) else cast(Json, value)

    def wrong_type(self, value: Json) -> WrongType:
        """Returns the error for a value of another type."""
        return WrongType(f"{shown(value)}: allowed is {self.words}")


class Whole(Form[int]):
    """A whole number."""

    def __init__(self, low: int = 0, high: int = INT_MAX, kind_max: int = INT_MAX) -> None:
        """`kind_max` is the largest value of Pulsar's type; numbers beyond it are no numbers of that type."""
        super().__init__(f"a whole number from {low} to {high}", type="integer", minimum=low, maximum=high)
        self.low = low
        """The smallest number allowed."""
        self.high = high
        """The largest number allowed."""
        self._kind_max = kind_max

    def read(self, value: Json) -> int:
        """Returns the number, also one in quotes."""
        if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= _TEXT_SHOWN:
            value = int(value)
        # `type(...) is`, not isinstance: in Python True is an int, in a policy it is a mistake.
        if type(value) is not int or not -self._kind_max - 1 <= value <= self._kind_max:
            raise self.wrong_type(value)
        return value

    def check(self, value: int) -> None:
        """Refuses a number outside of the range."""
        if not self.low <= value <= self.high:
            raise PolicyRefused(f"{value}: allowed is {self.words}")


ANY_LONG: Final = Whole(-LONG_MAX - 1, LONG_MAX, LONG_MAX)
"""The form of any `long` of Java."""


class Fraction(Form[float]):
    """A number that may have a fraction."""

    def __init__(self) -> None:
        super().__init__("a number", type="number")

    def read(self, value: Json) -> float:
        """Returns the number; NaN and the infinities are no JSON and are refused."""
        if type(value) not in (int, float) or not abs(cast(float, value)) <= LONG_MAX:
            raise self.wrong_type(value)
        return float(cast(float, value))


class Flag(Form[bool]):
    """A boolean."""

    def __init__(self) -> None:
        super().__init__("true or false", type="boolean")

    def read(self, value: Json) -> bool:
        """Returns the boolean, also one in quotes."""
        flag = _FLAGS.get(value) if isinstance(value, str) else value
        if not isinstance(flag, bool):
            raise self.wrong_type(value)
        return flag


class Text(Form[str]):
    """A text."""

    def __init__(self, low: int = 0, high: int = _TEXT_MAX) -> None:
        """`low` and `high` are the numbers of characters that are allowed."""
        every = (low, high) == (0, _TEXT_MAX)
        super().__init__("a text" if every else f"a text of {low} to {high} characters", type="string")
        self._low = low
        self._high = high

    def read(self, value: Json) -> str:
        """Returns the text."""
        if not isinstance(value, str):
            raise self.wrong_type(value)
        return value

    def check(self, value: str) -> None:
        """Refuses a text that is too short or too long."""
        if not self._low <= len(value) <= self._high:
            raise PolicyRefused(f"{shown(value)}: allowed is {self.words}")


class Choice(Form[str]):
    """One of several names."""

    def __init__(self, *names: str) -> None:
        super().__init__(f"one of {', '.join(names)}", type="string", enum=[*names])
        self._names = names

    def read(self, value: Json) -> str:
        """Returns the name. Pulsar takes an unknown one as unset without a word; here it is refused."""
        if not isinstance(value, str) or value not in self._names:
            raise self.wrong_type(value)
        return value


class Names(Form[tuple[str, ...]]):
    """A list of texts, each of them once."""

    def __init__(self) -> None:
        super().__init__("a JSON list of texts", type="array", items={"type": "string"})

    def read(self, value: Json) -> tuple[str, ...]:
        """Returns the texts in the order of their first places."""
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise self.wrong_type(value)
        return tuple(dict.fromkeys(cast("list[str]", value)))


class Subset(Form[tuple[str, ...]]):
    """Several of some names, each at most once."""

    def __init__(self, *names: str) -> None:
        items: Json = {"type": "string", "enum": [*names]}
        super().__init__(f"a list of {', '.join(names)}", type="array", items=items)
        self._names = names

    def read(self, value: Json) -> tuple[str, ...]:
        """Returns the names in the order of the row, each once."""
        if not isinstance(value, list) or any(name not in self._names for name in value):
            raise self.wrong_type(value)
        return tuple(name for name in self._names if name in value)


class Texts(Form[dict[str, str]]):
    """Texts by name."""

    def __init__(self) -> None:
        super().__init__("a JSON object of texts", type="object", additionalProperties={"type": "string"})

    def read(self, value: Json) -> dict[str, str]:
        """Returns the texts; numbers and booleans become texts, as in Pulsar."""
        if not isinstance(value, dict) or any(isinstance(one, dict | list) for one in value.values()):
            raise self.wrong_type(value)
        # None has no text; Pulsar's map would keep it, but no client can read it back.
        return {
            name: one if isinstance(one, str) else json.dumps(one)
            for name, one in value.items()
            if one is not None
        }

    def write(self, value: dict[str, str]) -> Json:
        """Returns the texts by name."""
        return dict(value)


def member(name: str, form: Form[T], default: R) -> R:
    """Makes a field of a structure: its name in JSON, its form, and its value where the JSON lacks it."""
    metadata = {_NAME: name, _FORM: form}
    value: R = field(default=default, metadata=metadata)
    return value


class Structure(Form[T]):
    """A JSON object whose members are the fields of a dataclass.

    Unknown members are ignored and missing ones get their default, as in Pulsar.
    """

    def __init__(self, kind: type[T], check: Callable[[T], None] | None = None, words: str = "") -> None:
        """`check` raises PolicyRefused for members that do not fit each other; `words` replace the list of members."""
        self._kind = kind
        self._check = check
        # Only dataclasses are given, which mypy cannot know here.
        self._members: tuple[Field[Any], ...] = fields(cast(Any, kind))
        names = ", ".join(f"`{one.metadata[_NAME]}`" for one in self._members)
        super().__init__(words or f"a JSON object with {names}", type="object")

    def read(self, value: Json) -> T:
        """Returns the structure; the error names the member that is wrong."""
        if not isinstance(value, dict):
            raise self.wrong_type(value)
        found: dict[str, object] = {}
        for one in self._members:
            given = value.get(one.metadata[_NAME])
            if given is not None:
                with named(one.metadata[_NAME]):
                    found[one.name] = one.metadata[_FORM].read(given)
        return self._kind(**found)

    def check(self, value: T) -> None:
        """Refuses a member outside of its range, and members that do not fit each other."""
        for one in self._members:
            given = getattr(value, one.name)
            if given is not None:
                with named(one.metadata[_NAME]):
                    one.metadata[_FORM].check(given)
        if self._check is not None:
            self._check(value)

    def write(self, value: T) -> Json:
        """Returns the object; members without a value are left out."""
        found: dict[str, Json] = {}
        for one in self._members:
            given = getattr(value, one.name)
            if given is not None:
                found[one.metadata[_NAME]] = one.metadata[_FORM].write(given)
        return found
