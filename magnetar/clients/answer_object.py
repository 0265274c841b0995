"""AnswerObject: a JSON object of a broker's answer, whose members are asked for by name and type."""

from __future__ import annotations

from collections.abc import Iterator

from foundation.value import Json


class AnswerObject:
    """A JSON object. A member that is missing raises KeyError, one of another type than asked for TypeError."""

    def __init__(self, value: Json) -> None:
        """Raises TypeError for a value that is no object."""
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is no JSON object")
        self.value = value
        """The object as it came."""

    def text(self, name: str) -> str:
        """Returns a text."""
        found = self.value[name]
        if not isinstance(found, str):
            raise TypeError(f"{name} is no text: {found!r}")
        return found

    def number(self, name: str) -> float | None:
        """Returns a number; None for null."""
        found = self.value[name]
        if found is not None and not isinstance(found, int | float):
            raise TypeError(f"{name} is no number: {found!r}")
        return found

    def amount(self, name: str) -> float:
        """Returns a number; 0 for null."""
        return self.number(name) or 0

    def inner(self, name: str) -> AnswerObject | None:
        """Returns an object; None for null."""
        found = self.value[name]
        return None if found is None else AnswerObject(found)

    def list(self, name: str) -> list[Json]:
        """Returns an array; an empty one for null."""
        found = self.value[name]
        if found is not None and not isinstance(found, list):
            raise TypeError(f"{name} is no array: {found!r}")
        return found or []

    def each(self, name: str) -> Iterator[AnswerObject]:
        """Yields the objects of an array; none for null."""
        return map(AnswerObject, self.list(name))

    def named(self, name: str) -> Iterator[tuple[str, AnswerObject]]:
        """Yields the objects in an object with their names."""
        inner = self.inner(name)
        return (
            iter(()) if inner is None else ((key, AnswerObject(value)) for key, value in inner.value.items())
        )
