"""Java's properties format: the text of a `.conf` file becomes keys and values in their order.

This is syntax alone: comments (`#`, `!`), `key=value`, `key: value`, `key value`, continuation lines and backslash
escapes. `foundation/settings/load.py` decides the meaning of a key and which of two equal keys wins.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from foundation.settings.errors import SettingsError

WHITESPACE = " \t\f"
KEY = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
"""Up to the first `=`, `:` or blank that no backslash protects."""
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A key of a file with its value."""

    key: str
    """Unescaped."""
    value: str
    """Unescaped, without blanks at its ends."""
    line: int
    """Number of the key's line, counted from 1; a continued value ends on a later one."""


def parse_properties(text: str, source: str) -> list[Property]:
    """Returns the properties of a file's text. Raises SettingsError for a malformed `\\uXXXX` escape.

    `source` is the file's name in the error.
    """
    return [_property(logical, line, source) for logical, line in _logical_lines(text)]


def _logical_lines(text: str) -> list[tuple[str, int]]:
    """Joins continued lines and leaves out comments and blank lines; each with its first line's number.

    A line goes on when it ends in an odd number of backslashes: each pair of them is an escaped backslash.
    """
    logical: list[tuple[str, int]] = []
    # Not `splitlines`: it also splits at characters such as U+2028, which Java takes for a part of the value.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = 0
    while at < len(lines):
        line = lines[at].lstrip(WHITESPACE)
        first = at + 1
        at += 1
        if not line or line[0] in "#!":
            continue
        while line.endswith("\\") and _continues(line):
            line = line[:-1] + (lines[at].lstrip(WHITESPACE) if at < len(lines) else "")
            at += 1
        logical.append((line, first))
    return logical


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _property(line: str, number: int, source: str) -> Property:
    key_end = KEY.match(line)
    assert key_end is not None  # The pattern matches the empty text too.
    end = key_end.end()
    rest = line[end:].lstrip(WHITESPACE)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(WHITESPACE)
    # Java keeps blanks at the end of a value, but Pulsar strips every value that it reads.
    key, value = line[:end], rest.rstrip(WHITESPACE)
    if "\\" in line:
        key, value = _unescape(key, number, source), _unescape(value, number, source)
    return Property(key, value, number)


def _unescape(text: str, number: int, source: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            out.append(_unicode_escape(text[at : at + 4], number, source))
            at += 4
        else:
            # As Java reads it, a backslash before any other character is dropped and raises no error.
            out.append(ESCAPES.get(char, char))
    return "".join(out)


def _unicode_escape(digits: str, number: int, source: str) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise SettingsError(f"{source}:{number}: \\u{digits}: allowed are four hexadecimal digits after \\u")
    return chr(int(digits, 16))
