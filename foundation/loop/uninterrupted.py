"""Writes that end although their caller was cancelled, so that memory and store agree."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def uninterrupted(work: Coroutine[object, object, T]) -> T:
    """Awaits the work; a cancellation comes through when the work has ended.

    A write that is cancelled half way may be stored while its writer still has the version before. Each later write of
    the same key would then be refused, as if another broker had taken the topic over.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
