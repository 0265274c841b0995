"""Finds the sentence in an error of Spark. Pure; imports no Spark."""

from __future__ import annotations

import re
from typing import Final

_OURS: Final = re.compile(r"(?:pyspark_pulsar\.errors|broker\.recorder\.errors)\.\w+: (.+)")
_CLASS: Final = re.compile(r"^\[[A-Z_.]+\] ")


def own_sentence_of(error: BaseException) -> str | None:
    """Returns the sentence of an error that our own code raised in a task; None for errors of other code."""
    found = _OURS.search(str(error))
    return None if found is None else found[1]


def sentence_of(error: BaseException) -> str:
    """Returns the sentence of our own code where the error comes from there, else the first line."""
    text = str(error).strip()
    own = own_sentence_of(error)
    if own is not None:
        return own
    # The last line would be Spark's "SQLSTATE: 38000", which says nothing; the trace stands in between.
    return _CLASS.sub("", text.splitlines()[0]) if text else type(error).__name__
