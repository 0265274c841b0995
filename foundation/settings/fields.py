"""Fields of a room's settings: each names the key that it comes from, and the table supplies the rest.

A room takes its values as one small frozen dataclass with its own names and units:

    class NetSettings(RoomSettings):
        liveness_timeout_s: float = broker_key.float("connectionLivenessCheckTimeoutMillis", "s")

`NetSettings.of(settings)` reads every field from the settings. `NetSettings(liveness_timeout_s=1)`, as tests write,
takes all other fields from the settings of a process that starts without a file. So a default stands in the table
alone, and a field whose key or kind does not exist fails when its module is imported.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, Self, TypeVar, cast

from foundation.settings.keys import Key, KeyTable, Kind
from foundation.settings.settings import Settings
from foundation.value import Value

T = TypeVar("T")

_READ = "read"
"""Key of a field's metadata: the function that reads the field from the settings."""

_UNITS = {
    "time": {"ns": 1, "ms": 10**6, "s": 10**9, "min": 60 * 10**9},
    "size": {"bytes": 1, "MiB": 1 << 20},
}


class RoomSettings(Value):
    """Base of a room's settings, whose fields come from keys."""

    @classmethod
    def of(cls, settings: Settings, **given: object) -> Self:
        """Reads every field of `settings`, except those that the caller gives."""
        wanted = [one for one in fields(cast(Any, cls)) if one.name not in given]
        return cls(**{one.name: one.metadata[_READ](settings) for one in wanted}, **given)


class KeyFields:
    """Makes the fields of room settings from one table of keys.

    The methods return a `dataclasses.field` under the type of its value, as `dataclasses.field` itself does.
    """

    def __init__(self, table: KeyTable, defaults: Callable[[], Settings]) -> None:
        """`defaults` returns the settings of a process without file, environment and options."""
        self._table = table
        self._defaults = defaults

    def int(self, name: builtins.str, unit: builtins.str = "") -> builtins.int:
        """Makes a field for a whole number, in `unit` if named."""
        factor, divisor = _ratio(self._key(name, "int", "long"), unit)
        assert divisor == 1, f"{name} in {unit} has fractions: use float"
        return self.rule(lambda settings: settings.int(name) * factor)

    def float(self, name: builtins.str, unit: builtins.str = "") -> builtins.float:
        """Makes a field for a fractional number, in `unit` if named."""
        key = self._key(name, "int", "long", "double")
        factor, divisor = _ratio(key, unit)
        if key.kind == "double":
            return self.rule(lambda settings: settings.float(name) * factor / divisor)
        return self.rule(lambda settings: settings.int(name) * factor / divisor)

    def bool(self, name: builtins.str) -> builtins.bool:
        """Makes a field for a switch."""
        self._key(name, "bool")
        return self.rule(lambda settings: settings.bool(name))

    def str(self, name: builtins.str) -> builtins.str:
        """Makes a field for a text, empty where the key is unset."""
        self._key(name, "string")
        return self.rule(lambda settings: settings.str(name))

    def rule(self, read: Callable[[Settings], T]) -> T:
        """Makes a field for a value that `read` makes of some keys. `read` may raise SettingsError."""
        # A factory reads the default when an instance needs it: reading a computed one while modules are imported
        # would ask for the machine's name and memory in every process.
        return field(default_factory=lambda: read(self._defaults()), metadata={_READ: read})

    def _key(self, name: builtins.str, *kinds: Kind) -> Key:
        key = self._table.keys.get(name)
        assert key is not None, f"{name} is not in the table of {self._table.name}"
        assert key.used, f"{name} is read here, so its row must not say used=False"
        assert key.kind in kinds, f"{name} is a {key.kind}"
        return key


def _ratio(key: Key, unit: str) -> tuple[int, int]:
    """Returns factor and divisor from the key's unit to `unit`; one of them is 1."""
    if not unit:
        return 1, 1
    for sizes in _UNITS.values():
        if key.unit in sizes and unit in sizes:
            old, new = sizes[key.unit], sizes[unit]
            return max(old // new, 1), max(new // old, 1)
    raise AssertionError(f"{key.name} is in {key.unit}, which is no other form of {unit}")
