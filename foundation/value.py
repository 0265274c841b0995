"""Value: base of frozen dataclasses that are made a few times per start or request. Json: the type of a JSON value."""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from typing import Any, NoReturn, TypeAlias, cast, dataclass_transform

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A parsed text, or a value to be written as one."""


@dataclass_transform(frozen_default=True)
class Value:
    """Makes each subclass a frozen dataclass whose methods are those of this class.

    `dataclass` compiles six methods for each frozen class, which takes 0.5 to 2 ms of every start. Its own instances are
    smaller and made faster: what exists once per message, consumer or topic stays a plain `dataclass` with slots.
    """

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)

    def __init__(self, *values: object, **given: object) -> None:
        # Only the subclasses are dataclasses, which mypy cannot know here.
        known = fields(cast(Any, self))
        placed = {
            one.name: value
            for one, value in zip((one for one in known if not one.kw_only), values, strict=False)
        }
        if len(placed) < len(values) or placed.keys() & given or given.keys() - {one.name for one in known}:
            raise TypeError(f"{type(self).__name__} has no such fields, or has one twice: {values}, {given}")
        given |= placed
        for one in known:
            if one.name in given:
                value = given[one.name]
            elif one.default is not MISSING:
                value = one.default
            elif one.default_factory is not MISSING:
                value = one.default_factory()
            else:
                raise TypeError(f"{type(self).__name__} needs {one.name}")
            object.__setattr__(self, one.name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks the values; a subclass may raise ValueError."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"
