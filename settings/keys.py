"""A key: its name, kind, defaults, limits and meaning; and the table of all keys of one process.

Tables are data: the conf files, `docs/configuration.md`, `config show` and the loader all read the same
one. A key that we have words for is a `Key`; the others that Pulsar has are words in one text, because there
are hundreds and a start must not pay for objects that nobody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

Kind = Literal["int", "long", "double", "bool", "string", "list"]
Value = int | float | bool | str | tuple[str, ...]

PROFILES = ("4.0", "4.2", "5.0")
"""Pulsar releases whose defaults can be asked for; a default without a column of its own holds for all."""
DEFAULT_PROFILE = "4.2"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

COMPUTED = "<computed>"
"""In a default's column: unset in this profile, so that the loader's computed value stands in."""

MASK = "********"
MASKED = frozenset(
    (
        "brokerClientAuthenticationParameters",
        "bookkeeperClientAuthenticationParameters",
        "tokenSecretKey",
        "authParams",
    )
)


class Key:
    """One key with its meaning.

    `default` holds for every profile that has no column of its own (`v40`, `v50`); `standalone`, where
    given, is the default of `magnetar standalone`; `shipped` is what our conf file says where that differs
    from the default. None means unset: `computed` then says in words what stands in. `used=False`: nobody
    reads it yet, so setting it has no effect and is named in the log; it is checked all the same.
    """

    __slots__ = (
        "choices",
        "computed",
        "default",
        "doc",
        "dynamic",
        "high",
        "kind",
        "low",
        "name",
        "ours",
        "section",
        "shipped",
        "standalone",
        "used",
        "v40",
        "v50",
    )

    def __init__(
        self,
        name: str,
        kind: Kind,
        default: Value | None,
        doc: str,
        *,
        v40: Value | None = None,
        v50: Value | None = None,
        standalone: Value | None = None,
        shipped: Value | None = None,
        low: float | None = None,
        high: float | None = None,
        choices: tuple[str, ...] = (),
        dynamic: bool = False,
        computed: str = "",
        ours: bool = False,
        used: bool = True,
    ) -> None:
        self.name = name
        self.kind: Kind = kind
        self.default = default
        self.doc = doc
        self.v40 = v40
        self.v50 = v50
        self.standalone = standalone
        self.shipped = shipped
        self.low = low
        self.high = high
        self.choices = choices
        self.dynamic = dynamic
        self.computed = computed
        self.ours = ours
        self.used = used
        self.section = ""

    def default_for(self, profile: str, standalone: bool = False) -> Value | None:
        if standalone and self.standalone is not None:
            return self.standalone
        column = {"4.0": self.v40, "5.0": self.v50}.get(profile)
        value = self.default if column is None else column
        return None if value == COMPUTED else value

    def differs_by_profile(self) -> bool:
        return len({self.default_for(profile) for profile in PROFILES}) > 1

    def parse(self, text: str) -> Value:
        """Raises ValueError when `text` is not an allowed value; `allowed()` says what is."""
        value = _PARSERS[self.kind](text)
        if isinstance(value, int | float) and not self.lowest() <= value <= self.highest():
            raise ValueError(text)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        return value

    def lowest(self) -> float:
        if self.low is not None:
            return self.low
        return {"int": -INT_MAX - 1, "long": -LONG_MAX - 1}.get(self.kind, -DOUBLE_MAX)

    def highest(self) -> float:
        if self.high is not None:
            return self.high
        return {"int": INT_MAX, "long": LONG_MAX}.get(self.kind, DOUBLE_MAX)

    def allowed(self) -> str:
        """In words, for an error line and the documentation."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "list":
            return "values separated by commas"
        if self.kind == "string":
            return "any text"
        noun = "a number" if self.kind == "double" else "a whole number"
        if self.high is None and self.kind != "int":
            return noun if self.low is None else f"{noun} from {_plain(self.low)}"
        return f"{noun} from {_plain(self.lowest())} to {_plain(self.highest())}"

    def show(self, value: Value | None) -> str:
        """`value` as it stands in a conf file; a secret is masked."""
        return mask(self.name, format_value(value))


def _parse_whole(text: str) -> int:
    # Python would also take 1_000 and other scripts' digits; Java takes neither.
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return int(text)


def _parse_double(text: str) -> float:
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
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def mask(name: str, text: str) -> str:
    secret = name in MASKED or "password" in name.lower()
    return MASK if secret and text else text


Section = tuple[str, Sequence[Key]]


class KeyTable:
    """All keys of one process. `name` is the conf file's stem.

    `unused` has one word per key that Pulsar's own file or class has and we do not use: the name and, after
    `=`, every value that counts as "left at its default", divided by `|`. Keys that start with one of
    `prefixes` are passed through by Pulsar to a library that we do not have: accepted, not used.
    `removed` says, for those of `unused` that Pulsar itself no longer reads, what to do instead.
    `dynamic` names those of `unused` that Pulsar lets change at run time; a `Key` says so itself.
    """

    def __init__(
        self,
        name: str,
        sections: Iterable[Section],
        *,
        unused: str = "",
        prefixes: tuple[str, ...] = (),
        removed: dict[str, str] | None = None,
        dynamic: str = "",
    ) -> None:
        self.name = name
        self.sections = list(sections)
        self.prefixes = prefixes
        self.removed = removed or {}
        self._dynamic_unused_text = dynamic
        self._unused_text = unused
        self._unused: dict[str, tuple[str, ...]] | None = None
        self.keys: dict[str, Key] = {}
        for title, keys in self.sections:
            for key in keys:
                assert key.name not in self.keys, f"{key.name} stands twice in the table of {name}"
                key.section = title
                self.keys[key.name] = key

    def is_unused(self, name: str) -> bool:
        """Known to Pulsar and without effect here."""
        key = self.keys.get(name)
        return name in self if key is None else not key.used

    def dynamic_names(self) -> list[str]:
        """What may change at run time, sorted; keys without effect are among them, as they are in a file."""
        named = (key.name for key in self.keys.values() if key.dynamic)
        return sorted((*named, *self._dynamic_unused_text.split()))

    def is_dynamic(self, name: str) -> bool:
        key = self.keys.get(name)
        return name in self._dynamic_unused_text.split() if key is None else key.dynamic

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self.keys or name in self.unused or name.startswith(self.prefixes)
        )

    @property
    def unused(self) -> dict[str, tuple[str, ...]]:
        """Name to the values that say nothing new, split out of the text on first use."""
        if self._unused is None:
            pairs = (word.partition("=") for word in self._unused_text.split())
            self._unused = {name: tuple(values.split("|")) for name, _, values in pairs}
        return self._unused

    def nearest(self, name: str) -> str | None:
        """The known key that `name` was probably meant to be."""
        from difflib import get_close_matches  # only a mistake pays for this import

        by_lower = {known.lower(): known for known in (*self.unused, *self.keys)}
        found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
        return by_lower[found[0]] if found else None
