"""Json: a value that JSON can express."""

from __future__ import annotations

from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A parsed text, or a value to be written as one."""
