"""Key: one row of a table of settings; KeyTable: all keys of one process.

A row holds every fact about its key once. The loader, the rooms' values (`foundation/settings/fields.py`), the conf files,
`docs/reference/configuration.md` and `config show` all read the same row. Keys that Pulsar has and this project does not use
are names in a data file (`foundation/settings/unused.py`), because hundreds of `Key` objects would cost every start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from foundation.settings.unused import UnusedKeys

Kind = Literal["int", "long", "double", "bool", "string", "list"]
Value = int | float | bool | str | tuple[str, ...]

PROFILES = ("4.0", "4.2", "5.0")
"""Pulsar releases whose defaults can be chosen."""
DEFAULT_PROFILE = "4.2"

PORT_MAX = 65535
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

COMPUTED = "<computed>"
"""As a default of one profile: unset there, so that the computed value holds."""

MASK = "********"
MASKED = frozenset(
    (
        "brokerClientAuthenticationParameters",
        "bookkeeperClientAuthenticationParameters",
        "tokenSecretKey",
        # Public, until somebody puts the private key there by mistake.
        "tokenPublicKey",
        "authParams",
        "brokerClient_authParams",
        "brokerClient_authParamMap",
        "basicAuthConf",
        "brokerClientSslFactoryPluginParams",
        "sslFactoryPluginParams",
        "tlsFactoryConfig",
        "brokerClientTlsFactoryConfig",
    )
)
"""Keys that hold secrets, besides every key with "password" in its name."""


class Key(NamedTuple):
    """A key of a process: name, kind, unit, defaults, limits, meaning.

    One row of a `KeyTable`. None stands for "not given" in every argument that may be None.
    """

    name: str
    """The name in the conf file and in Pulsar's documentation."""
    kind: Kind
    """Decides how the text of a value is parsed."""
    default: Value | None
    """Default of every profile without a column of its own; None = unset, see `computed`."""
    unit: str = ""
    """Of a number: `ms`, `s`, `min`, `bytes`, `MiB`, or the things that it counts."""
    doc: str = ""
    """Effect of the key, for conf files and docs."""
    v40: Value | None = None
    """Default in profile 4.0, where it differs."""
    v50: Value | None = None
    """Default in profile 5.0, where it differs."""
    standalone: Value | None = None
    """Default of `magnetar standalone`, where it differs; it wins over the profile."""
    shipped: Value | None = None
    """Value in our conf file, where it differs from the default."""
    low: float | None = None
    """Smallest number allowed; None = the smallest of the kind."""
    high: float | None = None
    """Largest number allowed; None = the largest of the kind."""
    choices: tuple[str, ...] = ()
    """Allowed texts of the value, or of each item of a list; () = any."""
    form: tuple[str, str] | None = None
    """(pattern that the whole text must match, the same in words for errors)."""
    needs: tuple[str, str] | None = None
    """(another key, the value that it must have); otherwise this key has no effect."""
    dynamic: bool = False
    """True if the value may change while the process runs."""
    computed: str = ""
    """Says in words which value holds while the key is unset; a rule of the process computes it."""
    ours: bool = False
    """True for a key that Pulsar does not have."""
    used: bool = True
    """False for a key that is checked and shown but read by no code: setting it has no effect."""
    asks_for: str = ""
    """Protection that any value but a default asks for; such a value is refused while the key is not `used`,
    and so is a misspelt name of the key."""
    optional: bool = False
    """True if an empty text stands for "none", such as a port that is switched off; for other keys it leaves the default."""
    section: str = ""
    """Title of its section; set by the `KeyTable` that takes the key in."""

    def default_for(self, profile: str, standalone: bool = False) -> Value | None:
        """Returns the default in a profile; None where the value is computed or the key stays unset."""
        if standalone and self.standalone is not None:
            return self.standalone
        column = {"4.0": self.v40, "5.0": self.v50}.get(profile)
        value = self.default if column is None else column
        return None if value == COMPUTED else value

    def differs_by_profile(self) -> bool:
        """Tells whether a change of profile changes the default."""
        return len({self.default_for(profile) for profile in PROFILES}) > 1

    def parse(self, text: str) -> Value:
        """Returns the value of `text`. Raises ValueError for a value that is not `allowed`."""
        value = _PARSERS[self.kind](text)
        if isinstance(value, int | float):
            # A bool is an int too, and always within: its limits are those of a double.
            # NaN is refused here too: it is neither below nor above anything.
            if not self._lowest() <= value <= self._highest():
                raise ValueError(text)
            return value
        for item in value if isinstance(value, tuple) else (value,):
            if self.choices and item not in self.choices:
                raise ValueError(text)
            if self.form is not None and not re.fullmatch(self.form[0], item):
                raise ValueError(text)
        return value

    def _lowest(self) -> float:
        if self.low is not None:
            return self.low
        return {"int": -INT_MAX - 1, "long": -LONG_MAX - 1}.get(self.kind, -DOUBLE_MAX)

    def _highest(self) -> float:
        if self.high is not None:
            return self.high
        return {"int": INT_MAX, "long": LONG_MAX}.get(self.kind, DOUBLE_MAX)

    def allowed(self) -> str:
        """Describes the allowed values, for error texts and the documentation."""
        if self.form is not None:
            return self.form[1]
        if self.choices:
            return ("any of " if self.kind == "list" else "one of ") + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "list":
            return "values separated by commas"
        if self.kind == "string":
            return "any text"
        noun = "a number" if self.kind == "double" else "a whole number"
        if self.high is None and self.kind != "int":
            return noun if self.low is None else f"{noun} from {_plain(self.low)}"
        return f"{noun} from {_plain(self._lowest())} to {_plain(self._highest())}"

    def show(self, value: Value | None) -> str:
        """Formats a value as in a conf file; a secret is masked."""
        return mask(self.name, format_value(value))


def _parse_whole(text: str) -> int:
    # Java refuses underscores (1_000) and the digits of other scripts; Python's int() would accept both.
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return int(text)


def _parse_double(text: str) -> float:
    # The same characters as in _parse_whole.
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


_PARSERS: dict[Kind, Callable[[str], Value]] = {
    "int": _parse_whole,
    "long": _parse_whole,
    "double": _parse_double,
    "bool": _parse_bool,
    "string": str,
    "list": _parse_list,
}


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"


def format_value(value: Value | None) -> str:
    """Formats a value as in a conf file; None is the empty text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def mask(name: str, text: str) -> str:
    """Replaces the value of a key that holds a secret."""
    secret = name in MASKED or "password" in name.lower()
    return MASK if secret and text else text


def _plain_text(text: str) -> str | float:
    """Returns a value in which the spelling of numbers and switches does not matter: 0, 00 and 0.0 are equal."""
    try:
        return _parse_double(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false") else text


class Section(NamedTuple):
    """Keys under one title of conf file and documentation, in order."""

    title: str
    """Heading above the keys."""
    keys: Sequence[Key]
    """Rows of the table."""


class KeyTable:
    """The keys of one process, in the order of its conf file."""

    def __init__(
        self,
        name: str,
        sections: Iterable[Section],
        *,
        unused: UnusedKeys,
        prefixes: tuple[str, ...] = (),
        removed: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        """Stem of the conf file: broker, bookkeeper, client."""
        self.sections = list(sections)
        """In the order of the conf file."""
        self.unused = unused
        """Keys that Pulsar knows and this project does not use; they are accepted and named once in the log."""
        self.prefixes = prefixes
        """Pulsar hands keys that begin so to libraries; accepted here, without effect."""
        self.removed = removed or {}
        """By name of an unused key that newer Pulsar releases do not read any more: its replacement, in words."""
        self.keys: dict[str, Key] = {}
        """By name, in the order of the sections."""
        for title, keys in self.sections:
            for key in keys:
                assert key.name not in self.keys, f"{key.name} stands twice in the table of {name}"

                self.keys[key.name] = key._replace(section=title)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.keys or name in self.unused.defaults or name.startswith(self.prefixes)
        )

    def is_unused(self, name: str) -> bool:
        """Tells whether Pulsar knows the key and it has no effect here."""
        key = self.keys.get(name)
        return name in self if key is None else not key.used

    def dynamic_names(self) -> list[str]:
        """Returns the keys that may change at run time, sorted; those without effect are among them."""
        named = (key.name for key in self.keys.values() if key.dynamic)
        return sorted((*named, *self.unused.dynamic))

    def is_dynamic(self, name: str) -> bool:
        """Tells whether the key may change at run time."""
        key = self.keys.get(name)
        return name in self.unused.dynamic if key is None else key.dynamic

    def says_nothing(self, name: str, text: str) -> bool:
        """Tells whether the key is left alone: `text` is empty or one of its defaults."""
        # The broker.conf that Pulsar ships sets hundreds of keys to their defaults: naming or refusing each of them
        # would hide the few that the user has changed.
        key = self.keys.get(name)
        if key is None:
            plain = _plain_text(text)
            return any(plain == _plain_text(value) for value in ("", *self.unused.defaults.get(name, ())))
        return not text or key.parse(text) in (key.default, key.v40, key.v50, key.standalone, key.shipped)

    def protection(self, name: str) -> str:
        """Returns the protection that a value of the key asks for, empty for none."""
        key = self.keys.get(name)
        return self.unused.asks_for.get(name, "") if key is None else key.asks_for

    def nearest(self, name: str, others: Iterable[str] = ()) -> str | None:
        """Returns the known key, of this table or of `others`, that `name` probably misspells."""
        from difflib import get_close_matches  # Imported here because only a mistake pays for it.

        by_lower = {known.lower(): known for known in (*others, *self.unused.defaults, *self.keys)}
        found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
        return by_lower[found[0]] if found else None
