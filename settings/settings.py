"""The effective settings of one process: a value for every key of its table, and where each came from.

Immutable: a change at run time gives a new object. A key that nobody set has its profile's default, and
where that is unset too, the computed value; both are looked up when asked for, so that a start pays only
for what it reads. Asking for a key that the table does not have, or as another kind, is a bug: assertion.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from settings.errors import NotDynamic, SettingsError
from settings.keys import KeyTable, Kind, Value, mask

DYNAMIC = "dynamic"
"""Origin of what was changed at run time."""


class Assigned(NamedTuple):
    value: Value
    origin: builtins.str


class Computed(NamedTuple):
    value: Value
    because: builtins.str
    """What the value was computed from, for `config show --origin` and the log."""


class Note(NamedTuple):
    """Something the log should say once after loading, when there is a log."""

    level: Literal["info", "warning"]
    text: builtins.str


class Settings:
    __slots__ = ("_assigned", "_computed", "_rules", "notes", "profile", "standalone", "table")

    def __init__(
        self,
        table: KeyTable,
        profile: builtins.str,
        *,
        standalone: builtins.bool = False,
        assigned: Mapping[builtins.str, Assigned] | None = None,
        rules: Mapping[builtins.str, Callable[[Settings], Computed]] | None = None,
        notes: tuple[Note, ...] = (),
    ) -> None:
        """`rules` computes the keys whose default is unset; they may read other keys of the settings."""
        self.table = table
        self.profile = profile
        self.standalone = standalone
        self.notes = notes
        self._assigned = dict(assigned or {})
        self._rules = rules or {}
        self._computed: dict[builtins.str, Computed] = {}

    def int(self, name: builtins.str) -> builtins.int:
        value = self.optional_int(name)
        assert value is not None, f"{name} may be unset: read it with optional_int"
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        value = self._get(name, ("int", "long"))
        assert value is None or isinstance(value, int)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        value = self._get(name, ("double",))
        assert isinstance(value, int | float)
        return builtins.float(value)

    def bool(self, name: builtins.str) -> builtins.bool:
        value = self._get(name, ("bool",))
        assert isinstance(value, bool)
        return value

    def str(self, name: builtins.str) -> builtins.str:
        """Unset text is empty text."""
        value = self._get(name, ("string",))
        assert value is None or isinstance(value, str)
        return value or ""

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """An unset list is empty."""
        value = self._get(name, ("list",))
        assert value is None or isinstance(value, tuple)
        return value or ()

    def value(self, name: builtins.str) -> Value | None:
        """Whatever kind it is; for showing."""
        assigned = self._assigned.get(name)
        if assigned is not None:
            return assigned.value
        default = self.table.keys[name].default_for(self.profile, self.standalone)
        if default is not None or name not in self._rules:
            return default
        return self._compute(name).value

    def origin(self, name: builtins.str) -> builtins.str:
        """`default`, `profile 4.2`, `computed: …`, `FILE:LINE`, `environment NAME`, `--set` or `dynamic`."""
        assigned = self._assigned.get(name)
        if assigned is not None:
            return assigned.origin
        key = self.table.keys[name]
        if key.default_for(self.profile, self.standalone) is None and name in self._rules:
            return f"computed: {self._compute(name).because}"
        if self.standalone and key.standalone is not None:
            return "default of standalone"
        return f"profile {self.profile}" if key.differs_by_profile() else "default"

    def is_set(self, name: builtins.str) -> builtins.bool:
        """Whether somebody said so, as opposed to a default."""
        return name in self._assigned

    def with_dynamic(self, texts: Mapping[builtins.str, builtins.str]) -> Settings:
        """These settings, as the process started with them, with `texts` by key on top, as set at run time.

        A computed value follows the keys that it comes from only if its own key is dynamic too: what needs a
        restart keeps what the start computed. Raises NotDynamic when a key is unknown or needs a restart, and
        SettingsError when a text is not allowed for its key.
        """
        assigned = dict(self._assigned)
        for name, text in texts.items():
            self.check_dynamic(name)
            if name in self.table.keys:
                assigned[name] = Assigned(parse_value(self.table, name, text, DYNAMIC), DYNAMIC)
        return Settings(
            self.table,
            self.profile,
            standalone=self.standalone,
            assigned=assigned,
            rules={name: self._rule_at_run_time(name) for name in self._rules},
            notes=self.notes,
        )

    def check_dynamic(self, name: builtins.str) -> None:
        """Raises NotDynamic, which says whether the key needs a restart or does not exist."""
        if self.table.is_dynamic(name):
            return
        if name in self.table:
            raise NotDynamic(f"{DYNAMIC}: {name}: this key only changes with a restart")
        near = self.table.nearest(name)
        raise NotDynamic(f"{DYNAMIC}: {name}: no such key" + (f"; did you mean {near}?" if near else ""))

    def _rule_at_run_time(self, name: builtins.str) -> Callable[[Settings], Computed]:
        return self._rules[name] if self.table.is_dynamic(name) else lambda _: self._compute(name)

    def _get(self, name: builtins.str, kinds: tuple[Kind, ...]) -> Value | None:
        key = self.table.keys.get(name)
        assert key is not None, f"{name} is not in the table of {self.table.name}"
        assert key.kind in kinds, f"{name} is a {key.kind}, asked for as {'/'.join(kinds)}"
        return self.value(name)

    def _compute(self, name: builtins.str) -> Computed:
        if name not in self._computed:
            self._computed[name] = self._rules[name](self)
        return self._computed[name]


def parse_value(table: KeyTable, name: str, text: str, where: str) -> Value:
    """Raises SettingsError with the line that says where, what, and what is allowed."""
    key = table.keys[name]
    try:
        return key.parse(text)
    except ValueError:
        shown = mask(name, text)
        raise SettingsError(f"{where}: {name}={shown}: allowed is {key.allowed()}") from None
