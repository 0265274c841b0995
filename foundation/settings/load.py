"""`load_settings` reads file, environment and command line, in this order; a later source wins.

1. the conf file, or the shipped values where no file is given
2. environment variables whose name equals a key (Pulsar's apply-config-from-env.py, first rule)
3. `PULSAR_PREFIX_<key>` variables in the order of their names (the second rule)
4. the command line: `--set key=value`, and options that stand for a key, such as `--data`

An empty value unsets a key. A bad value stops the start with one line (SettingsError), and so does a value that asks
for a protection which is not there. Everything else is a note for the log: a key given twice, an unknown key, the keys
that Pulsar knows and this project does not use. A server passes the notes to `refuse_unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from foundation.settings.errors import SettingsError
from foundation.settings.keys import DEFAULT_PROFILE, PROFILES, KeyTable, format_value, mask
from foundation.settings.properties import parse_properties
from foundation.settings.protection import refuse_missing, refuse_misspelt
from foundation.settings.settings import Assigned, Computed, Note, Settings, parse_value

PREFIX = "PULSAR_PREFIX_"
PROFILE_KEY = "pulsarDefaults"
FORMER_NAMES: Mapping[str, str] = {"magnetarProfile": PROFILE_KEY}
"""Keys of ours that were renamed, and their names of today; both are read."""
ALLOW_UNKNOWN = "--allow-unknown-keys"
"""The option of servers for files of other versions."""
SET = "--set"
"""The option for one value."""
NO_KEYS: Container[str] = ()
NO_RULES: Mapping[str, Callable[[Settings], Computed]] = {}


class FromOption(NamedTuple):
    """The value that an option of the command line gives to a key."""

    option: str
    """The option as its user knows it, such as `--data`; messages name it as the origin."""
    key: str
    """The key that the option stands for."""
    value: str
    """The text, as `--set` would have it."""


Override = str | FromOption
"""`key=value` of `--set`, or the value of another option."""


def with_data(overrides: Iterable[Override], folder: Path | str | None) -> list[Override]:
    """Returns the overrides, after them that of `--data` if it was given: it beats `--set`."""
    if folder is None:
        return list(overrides)
    return [*overrides, FromOption("--data", "magnetarDataDirectory", str(folder))]


def load_settings(
    table: KeyTable,
    path: str | Path | None,
    *,
    environ: Mapping[str, str],
    overrides: Sequence[Override] = (),
    profile: str | None = None,
    standalone: bool = False,
    neighbours: Container[str] = NO_KEYS,
    rules: Mapping[str, Callable[[Settings], Computed]] = NO_RULES,
) -> Settings:
    """Returns the settings of one process.

    `path` None means the shipped values. Of two `overrides` of a key the last one wins; `profile`, where given,
    outranks the key `pulsarDefaults`; `standalone` takes the defaults of `magnetar standalone`. `neighbours` has the
    keys of the same file that another table reads: they are skipped here. `rules` compute the keys whose default is unset.
    Raises SettingsError for a file that cannot be read and for the first bad value, and MissingProtection.
    """
    loader = _Loader(table, neighbours)
    if path is None:
        loader.add_shipped(standalone)
    else:
        loader.add_file(Path(path))
    loader.add_environment(environ)
    for override in overrides:
        loader.add_override(override)
    chosen = loader.profile(profile)
    assigned = loader.assigned()
    return Settings(
        table,
        chosen,
        standalone=standalone,
        environ=environ,
        assigned=assigned,
        rules=rules,
        notes=tuple(loader.notes),
    )


class _Loader:
    """Collects each key's last text, and notes for the log."""

    def __init__(self, table: KeyTable, neighbours: Container[str]) -> None:
        self.table = table
        self.neighbours = neighbours
        self.texts: dict[str, tuple[str, str]] = {}
        """By key: its text and the origin of that text."""
        self.notes: list[Note] = []

    def add_shipped(self, standalone: bool) -> None:
        """Adds the values by which our conf file differs from the defaults."""
        for key in self.table.keys.values():
            if key.shipped is not None and not (standalone and key.standalone is not None):
                self.texts[key.name] = (format_value(key.shipped), "shipped")

    def add_file(self, path: Path) -> None:
        """Adds the keys of a properties file; the later of two equal keys wins, with a warning."""
        lines: dict[str, int] = {}
        for key, value, line in parse_properties(read_text(path), str(path)):
            name = FORMER_NAMES.get(key, key)
            if name in lines:
                self._warn(f"{path}: {name} stands on lines {lines[name]} and {line}; line {line} wins")
            lines[name] = line
            self._add(key, value, f"{path}:{line}")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Adds variables named like a known key, then those with the prefix."""
        # Also keys that stand in the file alone: apply-config-from-env.py sets whatever the file has, known or not.
        # They end as one warning about an unknown key.
        named = [name for name in environ if name in self.table or name in self.texts or name in FORMER_NAMES]
        prefixed = [name for name in environ if name.startswith(PREFIX) and name != PREFIX]
        # Named ones first, so that a prefixed one wins, as in Pulsar's apply-config-from-env.py.
        for name in (*sorted(named), *sorted(prefixed)):
            key, value = name.removeprefix(PREFIX), environ[name].strip()
            if self._add(key, value, f"environment {name}"):
                self.notes.append(
                    Note("info", f"Applying config {key} = {mask(key, value)} (environment {name})")
                )

    def add_override(self, override: Override) -> None:
        """Adds one value of the command line."""
        if isinstance(override, FromOption):
            self._add(override.key, override.value, override.option)
            return
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set: {override}: allowed is key=value")
        self._add(key.strip(), value.strip(), SET)

    def profile(self, wanted: str | None) -> str:
        """Returns the profile that holds. Raises SettingsError for one that does not exist."""
        text, where = (wanted, "--profile") if wanted is not None else self.texts.get(PROFILE_KEY, ("", ""))
        if text and text not in PROFILES:
            raise SettingsError(f"{where}: {PROFILE_KEY}={text}: allowed is one of {', '.join(PROFILES)}")
        if wanted is not None and PROFILE_KEY in self.table.keys:
            self.texts[PROFILE_KEY] = (wanted, "--profile")
        return text or DEFAULT_PROFILE

    def assigned(self) -> dict[str, Assigned]:
        """Returns the parsed values; notes unknown keys and keys without effect. Raises MissingProtection."""
        assigned: dict[str, Assigned] = {}
        without_effect: list[str] = []
        for name, (text, where) in self.texts.items():
            if name not in self.table:
                self._warn_unknown(name, text, where)
                continue
            # An empty text unsets a key, so its default holds, also over an earlier source.
            if name not in self.table.keys:
                # Of a key without effect the text is kept as it is, to be shown.
                assigned[name] = Assigned(text, where)
            elif text:
                assigned[name] = Assigned(parse_value(self.table, name, text, where), where)
            elif self.table.keys[name].optional:
                assigned[name] = Assigned(None, where)
            if self.table.is_unused(name) and not self.table.says_nothing(name, text):
                if name in self.table.removed:
                    self._warn(f"{where}: {name} is not read any more: {self.table.removed[name]}")
                else:
                    without_effect.append(name)
        refuse_missing(self.table, {name: self.texts[name] for name in without_effect})
        if without_effect:
            # One line for all of them: a broker.conf of a real cluster may set many.
            self._warn("set, but not used here: " + ", ".join(sorted(without_effect)))
        return assigned

    def _add(self, key: str, value: str, where: str) -> bool:
        # One file of `magnetar standalone` has keys of broker and bookie; neither may call the other's unknown.
        if key in self.neighbours and key not in self.table.keys:
            return False
        name = FORMER_NAMES.get(key, key)
        if name != key:
            self.notes.append(Note("info", f"{where}: {key} is read as {name}, its name of today"))
        self.texts[name] = (value, where)
        return True

    def _warn_unknown(self, name: str, text: str, where: str) -> None:
        # The bookie of `magnetar standalone` has every other name as neighbour, and leaves unknown ones to the broker.
        others = self.neighbours if isinstance(self.neighbours, Iterable) else ()
        near = self.table.nearest(name, others)
        if near and near in self.table:
            refuse_misspelt(self.table, name, text, where, near)
        hint = f"; did you mean {near}?" if near else ""
        self.notes.append(
            Note(
                "warning",
                f"{where}: {name} is not a key that this program knows{hint}",
                unknown=name,
                commanded=where == SET,
            )
        )

    def _warn(self, text: str) -> None:
        self.notes.append(Note("warning", text))


def refuse_unknown(notes: Sequence[Note], others: Sequence[KeyTable] = ()) -> None:
    """Raises SettingsError, a line for each unknown key and the remedy, if there is any among the notes.

    `others` are the tables of other programs: a key of theirs stays a warning in a file or an environment, which programs
    share, and is refused with `--set`.
    """
    unknown = [
        note.text if note.text.endswith("?") else f"{note.text}."
        for note in notes
        if note.unknown and (note.commanded or not any(note.unknown in table for table in others))
    ]
    if unknown:
        raise SettingsError(
            "\n".join(unknown)
            + f" Correct or remove it, or start with {ALLOW_UNKNOWN} to go without its effect"
        )


def unknown_allowed(notes: Sequence[Note]) -> str:
    """Returns the line for the terminal of a server that starts in spite of unknown keys; empty without any."""
    count = sum(note.unknown != "" for note in notes)
    return (
        f"{ALLOW_UNKNOWN}: {count} unknown key{'s' * (count > 1)} without effect; the log names each"
        if count
        else ""
    )


def read_text(path: Path) -> str:
    """Returns the text of a file; a byte order mark at its beginning is no part of the first key."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None
