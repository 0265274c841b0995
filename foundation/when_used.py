"""Parts of an object that its first use makes: most topics of a large broker never need most of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

Owner = TypeVar("Owner")
Part = TypeVar("Part")


class _WhenUsed(Generic[Owner, Part]):
    """A descriptor that is no method: reading the attribute makes the part, and keeps it in a slot of the owner."""

    def __init__(self, slot: str, make: Callable[[Owner], Part]) -> None:
        self._slot, self._make = slot, make

    def __get__(self, owner: Owner, kind: type[Owner]) -> Part:
        part = getattr(owner, self._slot)
        if part is None:
            part = self._make(owner)
            setattr(owner, self._slot, part)
        return cast(Part, part)


def when_used(slot: str, make: Callable[[Owner], Part]) -> Part:
    """Returns the value of a class attribute: in instances it is the part, which the first use makes.

    `slot` is an attribute of the instance that is None until then; a look that shall make nothing asks that one.
    """
    return cast(Part, _WhenUsed(slot, make))
