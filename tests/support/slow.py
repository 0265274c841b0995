"""Parameters of which `make test` takes some; the others have the marker `slow`, and only `make test-slow` takes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

T = TypeVar("T")


def slow_but(quick: Collection[T], values: Sequence[T]) -> list[ParameterSet]:
    """Returns all `values` as parameters in their order; those that are not `quick` are slow."""
    assert all(value in values for value in quick)
    return [pytest.param(value, marks=() if value in quick else pytest.mark.slow) for value in values]
