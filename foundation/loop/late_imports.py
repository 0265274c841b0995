"""Imports of modules that a process needs after its start, while the loop serves clients."""

from __future__ import annotations

import asyncio
import gc
from importlib import import_module


async def import_late(*modules: str) -> None:
    """Imports modules by a thread; the statements that follow find them loaded.

    Modules live as long as the process, so Python's garbage collector looks at none of their objects, now or later: its
    passes would hold the loop for 30 ms, because the thread keeps the interpreter's lock during a pass.
    """
    gc.disable()
    try:
        for module in modules:
            await asyncio.to_thread(import_module, module)
        gc.freeze()
    finally:
        gc.enable()
