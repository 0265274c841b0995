"""Form: reads a policy's JSON into a typed value, checks its range, and writes it back.

Two steps, because they fail at different times. `read` refuses JSON of another type; it runs for requests and for stored
values. `check` refuses values outside of the policy's range; it runs for requests alone, so that a value which an older
version stored still counts.

Quoted numbers and quoted booleans are accepted, as Pulsar accepts them. Fractions for whole numbers and numbers for
booleans are refused: Pulsar would round or guess without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import Field, field, fields
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from broker.service.namespaces.namespaces import Json
from foundation.model.errors import BrokerError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")

INT_MAX: Final = 2**31 - 1
"""Largest value of Java's `int`, the type of most numbers in policies."""
LONG_MAX: Final = 2**63 - 1
"""Largest value of Java's `long`."""
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


class Form(Protocol[T]):
    """The type, range and JSON of one policy's value."""

    @property
    def words(self) -> str:
        """The allowed values in words, for error texts and the reference page."""
        ...

    def read(self, value: Json) -> T:
        """Returns the typed value. WrongType for JSON of another type."""
        ...

    def check(self, value: T) -> None:
        """Raises PolicyRefused for a value outside of the range."""
        ...

    def write(self, value: T) -> Json:
        """Returns the value as JSON, for the store and for answers."""
        ...


class Whole:
    """A whole number."""

    def __init__(self, low: int = 0, high: int = INT_MAX, kind_max: int = INT_MAX) -> None:
        """`kind_max` is the largest value of Pulsar's type; numbers beyond it are no numbers of that type."""
        self.low = low
        """The smallest number allowed."""
        self.high = high
        """The largest number allowed."""
        self._kind_max = kind_max

    @property
    def words(self) -> str:
        """The range."""
        return f"a whole number from {self.low} to {self.high}"

    def read(self, value: Json) -> int:
        """Returns the number, also one in quotes."""
        if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= _TEXT_SHOWN:
            value = int(value)
        # `type(...) is`, not isinstance: in Python True is an int, in a policy it is a mistake.
        if type(value) is not int or not -self._kind_max - 1 <= value <= self._kind_max:
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return value

    def check(self, value: int) -> None:
        """Refuses a number outside of the range."""
        if not self.low <= value <= self.high:
            raise PolicyRefused(f"{value}: allowed is {self.words}")

    def write(self, value: int) -> Json:
        """Returns the number."""
        return value


class Fraction:
    """A number that may have a fraction."""

    words = "a number"
    """There is no range."""

    def read(self, value: Json) -> float:
        """Returns the number; NaN and the infinities are no JSON and are refused."""
        if type(value) not in (int, float) or not abs(cast(float, value)) <= LONG_MAX:
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return float(cast(float, value))

    def check(self, value: float) -> None:
        """Accepts every number."""

    def write(self, value: float) -> Json:
        """Returns the number."""
        return value


class Flag:
    """A boolean."""

    words = "true or false"
    """The two values."""

    def read(self, value: Json) -> bool:
        """Returns the boolean, also one in quotes."""
        flag = _FLAGS.get(value) if isinstance(value, str) else value
        if not isinstance(flag, bool):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return flag

    def check(self, value: bool) -> None:
        """Accepts both."""

    def write(self, value: bool) -> Json:
        """Returns the boolean."""
        return value


class Text:
    """A text."""

    def __init__(self, low: int = 0, high: int = _TEXT_MAX) -> None:
        """`low` and `high` are the numbers of characters that are allowed."""
        self._low = low
        self._high = high
        self.words = "a text" if (low, high) == (0, _TEXT_MAX) else f"a text of {low} to {high} characters"
        """The allowed texts, for error texts."""

    def read(self, value: Json) -> str:
        """Returns the text."""
        if not isinstance(value, str):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return value

    def check(self, value: str) -> None:
        """Refuses a text that is too short or too long."""
        if not self._low <= len(value) <= self._high:
            raise PolicyRefused(f"{shown(value)}: allowed is {self.words}")

    def write(self, value: str) -> Json:
        """Returns the text."""
        return value


class Choice(Text):
    """One of several names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        """The names that are allowed."""
        self.words = f"one of {', '.join(names)}"

    def read(self, value: Json) -> str:
        """Returns the name. Pulsar takes an unknown one as unset without a word; here it is refused."""
        if value not in self.names:
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return value


class Subset:
    """Several of some names, each at most once."""

    def __init__(self, *names: str) -> None:
        self.names = names
        """The names that are allowed, in the order of answers."""
        self.words = f"a list of {', '.join(names)}"
        """The names, for error texts."""

    def read(self, value: Json) -> tuple[str, ...]:
        """Returns the names in the order of the row, each once."""
        if not isinstance(value, list) or any(name not in self.names for name in value):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return tuple(name for name in self.names if name in value)

    def check(self, value: tuple[str, ...]) -> None:
        """Accepts every combination, the empty one included."""

    def write(self, value: tuple[str, ...]) -> Json:
        """Returns the list."""
        return list(value)


class Names:
    """A list of texts, each of them once."""

    words = "a JSON list of texts"
    """Any texts are allowed."""

    def read(self, value: Json) -> tuple[str, ...]:
        """Returns the texts in the order of their first places."""
        names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else None
        if names is None or len(names) != len(cast("list[Json]", value)):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        return tuple(dict.fromkeys(names))

    def check(self, value: tuple[str, ...]) -> None:
        """Accepts every list, the empty one included."""

    def write(self, value: tuple[str, ...]) -> Json:
        """Returns the list."""
        return list(value)


class Texts:
    """Texts by name."""

    words = "a JSON object of texts"
    """Any names are allowed."""

    def read(self, value: Json) -> dict[str, str]:
        """Returns the texts; numbers and booleans become texts, as in Pulsar."""
        if not isinstance(value, dict) or any(isinstance(one, dict | list) for one in value.values()):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        # None has no text; Pulsar's map would keep it, but no client can read it back.
        return {
            name: one if isinstance(one, str) else json.dumps(one)
            for name, one in value.items()
            if one is not None
        }

    def check(self, value: dict[str, str]) -> None:
        """Accepts all names and texts."""

    def write(self, value: dict[str, str]) -> Json:
        """Returns the texts by name."""
        return dict(value)


def member(name: str, form: Form[T], default: R) -> R:
    """Makes a field of a structure: its name in JSON, its form, and its value where the JSON lacks it."""
    metadata = {_NAME: name, _FORM: form}
    value: R = field(default=default, metadata=metadata)
    return value


class Structure(Generic[T]):
    """A JSON object whose members are the fields of a dataclass.

    Unknown members are ignored and missing ones get their default, as in Pulsar.
    """

    def __init__(self, kind: type[T], check: Callable[[T], None] | None = None) -> None:
        """`check` raises PolicyRefused for members that do not fit each other."""
        self._kind = kind
        self._check = check
        # Only dataclasses are given, which mypy cannot know here.
        self._members: tuple[Field[Any], ...] = fields(cast(Any, kind))
        names = ", ".join(f"`{one.metadata[_NAME]}`" for one in self._members)
        self.words = f"a JSON object with {names}"
        """The members, for error texts."""

    def read(self, value: Json) -> T:
        """Returns the structure; the error names the member that is wrong."""
        if not isinstance(value, dict):
            raise WrongType(f"{shown(value)}: allowed is {self.words}")
        found: dict[str, object] = {}
        for one in self._members:
            given = value.get(one.metadata[_NAME])
            if given is not None:
                try:
                    found[one.name] = one.metadata[_FORM].read(given)
                except WrongType as error:
                    raise WrongType(f"{one.metadata[_NAME]}={error}") from None
        return self._kind(**found)

    def check(self, value: T) -> None:
        """Refuses a member outside of its range, and members that do not fit each other."""
        for one in self._members:
            given = getattr(value, one.name)
            if given is not None:
                try:
                    one.metadata[_FORM].check(given)
                except PolicyRefused as error:
                    raise type(error)(f"{one.metadata[_NAME]}={error}") from None
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
