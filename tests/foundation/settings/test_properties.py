"""The properties format, as Java reads it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.settings.errors import SettingsError
from foundation.settings.properties import parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    return [(key, value) for key, value, _ in parse_properties(text, "x.conf")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("a: b", [("a", "b")]),
        ("a b", [("a", "b")]),
        ("  a \t=\t b c  ", [("a", "b c")]),
        ("a=", [("a", "")]),
        ("a", [("a", "")]),
        ("a=b=c:d", [("a", "b=c:d")]),
        ("a==b", [("a", "=b")]),
        ("# a=b\n! c=d\n   # e=f\n\n g=h", [("g", "h")]),
        ("a=b # no comment", [("a", "b # no comment")]),
        ("a=one,\\\n    two,\\\n    three\nb=c", [("a", "one,two,three"), ("b", "c")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\", [("a", "b")]),
        ("a\\=b\\ c=d", [("a=b c", "d")]),
        ("a=\\u00e9\\t\\q", [("a", "é\tq")]),
        ("a=b\r\nc=d\re=f", [("a", "b"), ("c", "d"), ("e", "f")]),
        ("=b", [("", "b")]),
    ],
)
def test_properties_are_parsed_as_java_does(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_property_has_its_line_when_it_follows_a_continued_one() -> None:
    found = parse_properties("# head\na=1,\\\n  2\n\nb=3", "x.conf")
    assert [(key, line) for key, _, line in found] == [("a", 2), ("b", 5)]


def test_comment_ends_with_its_line() -> None:
    assert pairs("# a comment \\\na=b") == [("a", "b")]


def test_malformed_escape_is_refused_with_file_and_line() -> None:
    with pytest.raises(SettingsError, match=r"^x\.conf:2: \\u12g4: allowed are four"):
        parse_properties("a=b\nc=\\u12g4", "x.conf")


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(SettingsError):
        found = parse_properties(text, "x.conf")
        assert all(1 <= one.line <= text.count("\n") + text.count("\r") + 1 for one in found)


@given(
    st.dictionaries(
        st.from_regex(r"[a-zA-Z_]\w{0,20}", fullmatch=True),
        st.from_regex(r"[!-\[\]-~]{0,30}", fullmatch=True),
    )
)
def test_plain_values_are_read_back(values: dict[str, str]) -> None:
    text = "\n".join(f"{key} = {value}" for key, value in values.items())
    assert pairs(text) == list(values.items())
