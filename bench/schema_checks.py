"""How long does a schema take, and how long does the event loop wait for others meanwhile?

`python -m bench.schema_checks [--rounds N]`

A registry over a metadata store in memory. A timer of 1 ms runs beside it; a stall is the time by which it comes late.
Stalls are counted in CPU time of this process, so other work on the machine has no part in them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Awaitable, Callable

from broker.metadata.memory_metadata_store import MemoryMetadataStore
from broker.model.errors import IncompatibleSchema
from broker.schemas.compatibility import Strategy
from broker.schemas.schema import Schema, SchemaType
from broker.schemas.schema_registry import SchemaRegistry
from broker.schemas.schema_store import SchemaStore
from magnetar.process.standalone import GC_YOUNG_OBJECTS

TICK_S = 0.001


def record(fields: int, *, name: str = "A", doc: str = "") -> Schema:
    """Returns an AVRO schema of so many optional integers."""
    listed = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(fields)]
    text = json.dumps({"type": "record", "name": name, "doc": doc, "fields": listed}, separators=(",", ":"))
    return Schema(SchemaType.AVRO, text.encode(), {})


async def worst_stall_ms(done: asyncio.Event) -> float:
    """Returns the longest delay of a timer until `done` is set."""
    worst = 0.0
    while not done.is_set():
        before = time.process_time()
        await asyncio.sleep(TICK_S)
        worst = max(worst, time.process_time() - before - TICK_S)
    return worst * 1000


async def measured(what: str, work: Callable[[], Awaitable[object]], calls: int) -> None:
    """Prints the time of a call and the worst stall beside it."""
    done = asyncio.Event()
    watching = asyncio.ensure_future(worst_stall_ms(done))
    await asyncio.sleep(0.01)
    begun = time.perf_counter()
    try:
        await work()
    except IncompatibleSchema as error:
        what += f" (refused: {str(error)[:60]})"
    taken = (time.perf_counter() - begun) / calls
    done.set()
    print(f"{what}: {taken * 1000:.3f} ms each, worst stall {await watching:.1f} ms", flush=True)


async def run_once() -> None:
    """Measures each case once."""
    registry = SchemaRegistry(SchemaStore(MemoryMetadataStore()), lambda: 0)
    full = Strategy.FULL
    await measured("nothing", lambda: asyncio.sleep(1), 1)
    small, large, grown = record(10), record(14_000), record(14_001, doc="x" * 200_000)
    await registry.add("t/n/small", small, full)

    async def known() -> None:
        for _ in range(1000):
            await registry.add("t/n/small", small, full)
            await asyncio.sleep(0)

    schemas = [record(14_000, name=f"N{number}") for number in range(20)]

    def twenty() -> Awaitable[object]:
        return asyncio.gather(
            *(registry.add(f"t/n/{number}", one, full) for number, one in enumerate(schemas))
        )

    await measured("a known schema of 10 fields", known, 1000)
    await measured("a new one", lambda: registry.add("t/n/new", small, full), 1)
    size = len(large.data)
    await measured(f"a first one of {size:,} bytes", lambda: registry.add("t/n/l", large, full), 1)
    size = len(grown.data)
    await measured(f"a second one of {size:,} bytes", lambda: registry.add("t/n/l", grown, full), 1)
    await measured("20 large ones at once", twenty, 20)
    bad = Schema(SchemaType.AVRO, b"[" + b"[]," * 19_000 + b"[]]", {})
    await measured("20,000 empty unions", lambda: registry.add("t/n/bad", bad, full), 1)


async def run(rounds: int) -> None:
    """Repeats all cases."""
    for _ in range(rounds):
        await run_once()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of all cases")
    # As a broker does it when it has started.
    gc.freeze()
    gc.set_threshold(GC_YOUNG_OBJECTS, 50, 1000)
    asyncio.run(run(parser.parse_args().rounds))
