"""own_time: the processor time of an answer, by which the page that repeats its request sets its pace."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from functools import partial
from types import coroutine
from typing import TypeVar

from foundation.units import NS_PER_MS

T = TypeVar("T")


@coroutine
def own_time(work: Coroutine[object, None, T]) -> Generator[object, None, tuple[T, float]]:
    """Returns the result of `work`, and the ms that its own steps took.

    The turns of the loop between two steps are left out: an answer about 100,000 topics makes a hundred such pauses, in
    which clients are served.
    """
    took_ns = 0
    step = partial(work.send, None)
    while True:
        begun_ns = time.perf_counter_ns()
        try:
            awaited = step()
        except StopIteration as ended:
            return ended.value, (took_ns + time.perf_counter_ns() - begun_ns) / NS_PER_MS
        took_ns += time.perf_counter_ns() - begun_ns
        try:
            yield awaited
        except BaseException as error:  # noqa: BLE001 - the work must see its cancellation, as every other error
            step = partial(work.throw, error)
        else:
            step = partial(work.send, None)
