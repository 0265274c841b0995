"""Parts and locks of objects that are many and seldom use them, such as the topics of a large broker.

`when_used` makes a part by its first use. `lock_of` keeps a lock while somebody holds it or waits for it: a lock takes 100
bytes with its attributes, and a topic with a subscription has three objects that need one.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast
from weakref import WeakValueDictionary

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


# Those that hold a lock and those that wait for it refer to it; nobody else does.
_IN_USE: Final[WeakValueDictionary[object, Lock]] = WeakValueDictionary()


def lock_of(owner: object) -> Lock:
    """Returns the lock of the owner, for `async with` at once: a lock that is free is forgotten.

    Two owners that are equal have the same lock.
    """
    lock = _IN_USE.get(owner)
    if lock is None:
        lock = _IN_USE[owner] = Lock()
    return lock
