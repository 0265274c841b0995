"""Watches of a store whose writes all go through this process: their list, and the base of such a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bookkeeper.metadata.metadata_store import Stop

_Watchers = dict[str, list[Callable[[], None]]]


class LocalWatches:
    """The watchers of keys and of the names below keys."""

    def __init__(self) -> None:
        self._of_values: _Watchers = {}
        self._of_names: _Watchers = {}

    def __bool__(self) -> bool:
        """Returns True while there is a watcher."""
        return bool(self._of_values or self._of_names)

    def add(self, key: str, changed: Callable[[], None]) -> Stop:
        """Watches the value of a key."""
        return _added(self._of_values, key, changed)

    def add_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Watches the names below a key."""
        return _added(self._of_names, key.rstrip("/"), changed)

    def tell(self, key: str, *, names: bool) -> None:
        """Tells of a write of the key. `names`: it was made or removed, so names above it may have come or gone."""
        for changed in self._of_values.get(key, ()):
            _soon(changed)
        while names and self._of_names and key:
            key = key.rpartition("/")[0]
            for changed in self._of_names.get(key, ()):
                _soon(changed)

    def tell_of(self, key: str, *, names: bool) -> bool:
        """Tells the watchers of one key, or of the names below it; returns False when there is none."""
        watching = self._watching(key, names=names)
        for changed in watching:
            _soon(changed)
        return bool(watching)

    def has(self, key: str, *, names: bool) -> bool:
        """Returns True while the key, or the list of names below it, has a watcher."""
        return bool(self._watching(key, names=names))

    def watched(self) -> list[tuple[str, bool]]:
        """Returns each key with a watcher, and True for one of the names below it."""
        return [*((key, False) for key in self._of_values), *((key, True) for key in self._of_names)]

    def tell_all(self) -> None:
        """Tells every watcher, as after an interruption of the session."""
        for watchers in (self._of_values, self._of_names):
            for changed in [one for watching in watchers.values() for one in watching]:
                _soon(changed)

    def _watching(self, key: str, *, names: bool) -> Sequence[Callable[[], None]]:
        return self._of_names.get(key.rstrip("/"), ()) if names else self._of_values.get(key, ())


class WatchedLocally:
    """The watches of a `MetadataStore` that tells `_watches` of each of its writes; those of other programs are not told."""

    def __init__(self) -> None:
        self._watches = LocalWatches()

    async def watch(self, key: str, changed: Callable[[], None]) -> Stop:
        """Calls back in the loop turn after a write."""
        return self._watches.add(key, changed)

    async def watch_children(self, key: str, changed: Callable[[], None]) -> Stop:
        """Calls back in the loop turn after a key below has come or gone."""
        return self._watches.add_children(key, changed)


def _soon(changed: Callable[[], None]) -> None:
    # Never inside of the write: its caller does not expect other work there.
    asyncio.get_running_loop().call_soon(changed)


def _added(watchers: _Watchers, key: str, changed: Callable[[], None]) -> Stop:
    watching = watchers.setdefault(key, [])
    stopped = False

    def call() -> None:
        if not stopped:
            changed()

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            watching.remove(call)
            if not watching and watchers.get(key) is watching:
                del watchers[key]

    watching.append(call)
    return stop
