"""Parses the JSON of a request in bounded time, and refuses values that Pulsar's types cannot hold. Pure.

Law: a value that this module returns can be written and read again: it is at most DEPTH_MAX levels deep, each of its
whole numbers fits into Java's long, and each of its texts into UTF-8. Deeper JSON would be stored and then fail to load at
the next start.
"""

from __future__ import annotations

import json

from foundation.settings.keys import LONG_MAX
from foundation.value import Json

DEPTH_MAX = 100
"""Levels of lists and objects in each other. Pulsar's own parser stops at 1,000; no request needs more than five."""
VALUES_MAX = 20_000
"""Commas and opening brackets of one text, which bound the time of parsing to 10 ms. A text of 1 MiB could have
500,000 of them and would stop the broker for a quarter of a second."""


def parse_json(data: bytes, *, any_text: bool = False) -> Json:
    """Returns the value in `data`. Raises ValueError, whose text names the limit or the mistake.

    `any_text`: accepts texts that do not fit into UTF-8, for a caller that keeps `data` and drops the value.
    """
    openings = data.count(b"[") + data.count(b"{")
    # Counted inside of strings too: a text with so many is refused although it may have fewer values.
    if openings + data.count(b",") > VALUES_MAX:
        raise ValueError(f"more than {VALUES_MAX} values; send them in several requests")
    try:
        value: Json = json.loads(data, parse_int=_whole, parse_constant=_no_number)
    except RecursionError:
        # Raised by Python's own limit of recursion, which is lower than the text is deep.
        raise ValueError(_too_deep()) from None
    if openings > DEPTH_MAX:
        _check_depth(value)
    if not any_text and (b"\\u" in data or b"\xed" in data):
        _check_texts(value)
    return value


def _check_texts(value: Json) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Python reads half of a surrogate pair, escaped or not, and fails when it is to write it.
        raise ValueError("a text has half of a surrogate pair (\\ud800 to \\udfff)") from None


def _check_depth(value: Json) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
        if not level:
            return
    raise ValueError(_too_deep())


def _children(value: Json) -> list[Json]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [child for child in children if isinstance(child, dict | list)]


def _too_deep() -> str:
    return f"lists and objects are nested more than {DEPTH_MAX} levels deep"


def _whole(digits: str) -> int:
    # 20 characters, because Python refuses to read a number of thousands of digits, with another error.
    number = int(digits) if len(digits) <= 20 else LONG_MAX + 1
    if not -LONG_MAX - 1 <= number <= LONG_MAX:
        raise ValueError(f"{digits[:30]} is out of range: {-LONG_MAX - 1} to {LONG_MAX} are allowed")
    return number


def _no_number(word: str) -> Json:
    raise ValueError(f"{word} is no JSON number")
