"""The options of one query as given, with the checks that all of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyspark_pulsar import jvm_options
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.nearest_name import nearest_name

_BYTES = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options of Spark itself, which it also passes to the sink of a stream."""


class GivenOptions:
    """The options as given; names are compared without regard to case, as Spark does."""

    def __init__(
        self, options: Mapping[str, str], names: Iterable[str], others: Iterable[str], kind: str
    ) -> None:
        """`others` are the names of the other kind of query; `kind` is "read" or "write". OptionError."""
        elsewhere = {name.lower(): name for name in others}
        self._names = {name.lower(): name for name in names}
        self._values = {key.lower(): value for key, value in options.items()}
        # Spark passes on every option that it does not know, so a misspelled one would have no effect and raise no
        # error.
        for key in self._values:
            if key not in self._names and key not in _OF_SPARK:
                if key in elsewhere:
                    other = {"read": "write", "write": "read"}[kind]
                    raise OptionError(f"{elsewhere[key]} is an option of a {other}, and this is a {kind}")
                if jvm_options.notice(key):
                    continue
                raise OptionError(_unknown(_as_given(key, options), self._names.values()))

    def text(self, name: str) -> str | None:
        """Returns an option as given; None without it."""
        return self._values.get(name.lower())

    def parsed(self, name: str, parse: Callable[[str], Any], expected: str, default: Any) -> Any:
        """Returns `parse(value)`, or `default` without the option. OptionError says that `expected` is expected."""
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except (ValueError, KeyError):
            raise OptionError(f"{name} is {value!r}: {expected} is expected") from None

    def flag(self, name: str, default: bool) -> bool:
        """Returns an option that is true or false."""
        words = {"true": True, "false": False}
        return bool(self.parsed(name, lambda text: words[text.strip().lower()], "true or false", default))

    def count(self, name: str, default: int | None) -> Any:
        """Returns a whole number from 1 on."""
        return self.parsed(name, _positive, "a whole number from 1 on", default)

    def seconds(self, name: str, default_ms: int) -> float:
        """Returns an option in milliseconds as seconds."""
        return float(self.count(name, default_ms)) / 1000

    def one_of(self, name: str, words: Iterable[str], default: str) -> str:
        """Returns one of `words`, in their spelling."""
        known = {word.lower(): word for word in words}
        return str(
            self.parsed(
                name, lambda text: known[text.strip().lower()], "one of " + ", ".join(known.values()), default
            )
        )


def _as_given(key: str, options: Mapping[str, str]) -> str:
    return next(name for name in options if name.lower() == key)


def _unknown(given: str, names: Iterable[str]) -> str:
    near = nearest_name(given, names)
    text = f"no option {given!r}" + (
        f": did you mean {near!r}?" if near else "; docs/reference/spark_source.md lists them"
    )
    # Spark does not pass the spelling on. Without the remark the user looks for a name that the program does not have.
    return text if given != given.lower() else f"{text} (Spark passes names in lower case)"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def parse_bytes(text: str) -> int:
    """Parses `10485760`, `10m` or `1 GB` into bytes; units are powers of 1024. ValueError."""
    match = _BYTES.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2].lower()]
