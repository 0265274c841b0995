"""Finds the sentence in an error of Spark. Pure; imports no Spark."""

from __future__ import annotations

import re
from typing import Final

_OF_THE_SOURCE: Final = re.compile(r"pyspark_pulsar\.errors\.\w+: (.+)")
_CLASS: Final = re.compile(r"^\[[A-Z_.]+\] ")


def sentence_of(error: BaseException) -> str:
    """Returns the sentence of the Pulsar source where the error comes from there, else the first line."""
    text = str(error).strip()
    found = _OF_THE_SOURCE.search(text)
    if found is not None:
        return found[1]
    # The last line would be Spark's "SQLSTATE: 38000", which says nothing; the trace stands in between.
    return _CLASS.sub("", text.splitlines()[0]) if text else type(error).__name__
