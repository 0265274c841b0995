"""Settings: the effective value of every key of one process, and the origin of each.

Settings never change: a change at run time makes new settings. A key that is not set has the default of its
profile, and where that is unset, its computed value; both are looked up on request, so that a start pays only for
the keys it reads. Asking for a key that the table does not have, or as another kind, is a bug: AssertionError.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from foundation.settings.errors import NotDynamic, SettingsError
from foundation.settings.keys import KeyTable, Kind, Value, mask
from foundation.settings.memory import DirectMemory, direct_memory
from foundation.settings.protection import refuse_missing

DYNAMIC = "dynamic"
"""Origin of a value that was set at run time."""


class Assigned(NamedTuple):
    """A value that a source has set."""

    value: Value | None
    """Parsed and within the key's limits; None = an optional key without a value."""
    origin: builtins.str
    """Names the source, as `Settings.origin` returns it."""


class Computed(NamedTuple):
    """A value that a rule computed, with its reason."""

    value: Value
    """Holds while the key is unset."""
    because: builtins.str
    """The facts that it follows from, for `config show --origin`."""


class Note(NamedTuple):
    """A line for the log, kept until the process has one."""

    level: Literal["info", "warning"]
    """Level of the log line."""
    text: builtins.str
    """The line, with secrets masked."""
    unknown: builtins.str = ""
    """The key that is in no table of this process; `refuse_unknown` ends the start of a server with it."""
    commanded: builtins.bool = False
    """The key was given with `--set`, so it is meant for this process."""


class Settings:
    """The values of one table's keys. `notes` has the lines that the log should show once."""

    def __init__(
        self,
        table: KeyTable,
        profile: builtins.str,
        *,
        standalone: builtins.bool = False,
        environ: Mapping[builtins.str, builtins.str],
        assigned: Mapping[builtins.str, Assigned],
        rules: Mapping[builtins.str, Callable[[Settings], Computed]],
        notes: tuple[Note, ...] = (),
        started: Settings | None = None,
    ) -> None:
        """`rules` compute the keys whose default is unset; they may read other keys and `memory`.

        `started` has the settings of the process's start, where these are a change at run time.
        """
        self.table = table
        """The keys that these values are of."""
        self.profile = profile
        """Pulsar release whose defaults hold: 4.0, 4.2 or 5.0."""
        self.standalone = standalone
        """True for the defaults of `magnetar standalone`."""
        self.notes = notes
        """Lines that the log should show once: unknown keys, keys without effect."""
        self._environ = environ
        self._assigned = assigned
        self._rules = rules
        self._started = started
        self._computed: dict[builtins.str, Computed] = {}
        self._memory: DirectMemory | None = None

    @property
    def memory(self) -> DirectMemory:
        """The direct memory of the process, measured once per process start."""
        if self._started is not None:
            # That of the start, also when the control group has another limit by now: a change of one key must not
            # change computed values of others.
            return self._started.memory
        if self._memory is None:
            self._memory = direct_memory(self._environ)
        return self._memory

    def int(self, name: builtins.str) -> builtins.int:
        """Returns a whole number; one that may be unset is a bug."""
        value = self._get(name, ("int", "long"))
        assert isinstance(value, int), f"{name} is unset"
        return value

    def optional_int(self, name: builtins.str) -> builtins.int | None:
        """Returns a whole number, None where it is unset."""
        value = self._get(name, ("int", "long"))
        assert value is None or isinstance(value, int)
        return value

    def float(self, name: builtins.str) -> builtins.float:
        """Returns a number that may have a fraction."""
        value = self._get(name, ("double",))
        assert isinstance(value, int | float), f"{name} is unset"
        return builtins.float(value)

    def optional_float(self, name: builtins.str) -> builtins.float | None:
        """Returns a number, None where it is unset."""
        value = self._get(name, ("double",))
        assert value is None or isinstance(value, int | float)
        return value

    def bool(self, name: builtins.str) -> builtins.bool:
        """Returns a switch."""
        value = self._get(name, ("bool",))
        assert isinstance(value, bool), f"{name} is unset"
        return value

    def str(self, name: builtins.str) -> builtins.str:
        """Returns a text, empty where it is unset."""
        value = self._get(name, ("string",))
        assert value is None or isinstance(value, str)
        return value or ""

    def list(self, name: builtins.str) -> tuple[builtins.str, ...]:
        """Returns the items of a list, none where it is unset."""
        value = self._get(name, ("list",))
        assert value is None or isinstance(value, tuple)
        return value or ()

    def value(self, name: builtins.str) -> Value | None:
        """Returns the value of any kind, for display."""
        assigned = self._assigned.get(name)
        if assigned is not None:
            return assigned.value
        default = self.table.keys[name].default_for(self.profile, self.standalone)
        if default is not None or name not in self._rules:
            return default
        return self._compute(name).value

    def origin(self, name: builtins.str) -> builtins.str:
        """Returns `default`, `profile 4.2`, `computed: …`, `FILE:LINE`, `environment NAME`, `--set` or `dynamic`."""
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
        """Tells whether a source set the key; False means that a default or a computed value holds."""
        return name in self._assigned

    def error(self, name: builtins.str, remedy: builtins.str) -> SettingsError:
        """Makes the error for a value that this process cannot take.

        The key alone allows the value; `remedy` says what to change.
        """
        value = self.table.keys[name].show(self.value(name))
        return SettingsError(f"{self.origin(name)}: {name}={value}: {remedy}")

    def with_dynamic(self, texts: Mapping[builtins.str, builtins.str]) -> Settings:
        """Returns these settings with `texts` on top, as set at run time.

        To be called on the settings that the process started with. Raises NotDynamic for a key that is unknown or needs
        a restart, SettingsError for a text that its key does not allow, and MissingProtection as a start does.
        """
        assigned = dict(self._assigned)
        for name, text in texts.items():
            self.check_dynamic(name)
            if name in self.table.keys:
                # Unused keys that Pulsar lets change are accepted and dropped, as at a start.
                assigned[name] = Assigned(parse_value(self.table, name, text, DYNAMIC), DYNAMIC)
        refuse_missing(self.table, {name: (text, DYNAMIC) for name, text in texts.items()})
        return Settings(
            self.table,
            self.profile,
            standalone=self.standalone,
            environ=self._environ,
            assigned=assigned,
            rules=self._rules,
            notes=self.notes,
            started=self,
        )

    def check_dynamic(self, name: builtins.str) -> None:
        """Raises NotDynamic for a key that cannot change at run time.

        The text says that the key needs a restart, or that it does not exist.
        """
        if self.table.is_dynamic(name):
            return
        if name in self.table:
            raise NotDynamic(f"{DYNAMIC}: {name}: this key only changes with a restart")
        near = self.table.nearest(name)
        raise NotDynamic(f"{DYNAMIC}: {name}: no such key" + (f"; did you mean {near}?" if near else ""))

    def _get(self, name: builtins.str, kinds: tuple[Kind, ...]) -> Value | None:
        key = self.table.keys.get(name)
        # An assertion: a wrong name is a mistake in the code, which no user can mend.
        assert key is not None, f"{name} is not in the table of {self.table.name}"
        assert key.kind in kinds, f"{name} is a {key.kind}, asked for as {'/'.join(kinds)}"
        return self.value(name)

    def _compute(self, name: builtins.str) -> Computed:
        # A key that needs a restart keeps the value computed at the start, although the keys it comes from may
        # change meanwhile: Pulsar computes these values at its start as well.
        if self._started is not None and not self.table.is_dynamic(name):
            return self._started._compute(name)
        if name not in self._computed:
            self._computed[name] = self._rules[name](self)
        return self._computed[name]


def parse_value(table: KeyTable, name: str, text: str, where: str) -> Value:
    """Returns the value of `text`. Raises SettingsError with the place, the value and the allowed values."""
    key = table.keys[name]
    try:
        return key.parse(text)
    except ValueError:
        shown = mask(name, text)
        raise SettingsError(f"{where}: {name}={shown}: allowed is {key.allowed()}") from None
