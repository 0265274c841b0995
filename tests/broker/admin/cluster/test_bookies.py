"""Racks of bookies over REST: stored by group, shown, and forgotten."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientSession

from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore
from bookkeeper.metadata.metadata_store import Versioned
from tests.broker.admin.test_rest import call, refusal

RACKS = "/admin/v2/bookies/racks-info"
RACK = {"rack": "/r1", "hostname": "b1:3181"}


async def test_rack_is_shown_in_its_group_until_it_is_deleted(admin: ClientSession) -> None:
    missing = (404, "Bookie rack placement configuration not found: b1:3181")
    assert await call(admin, f"GET {RACKS}") == (200, {})
    assert await refusal(admin, f"GET {RACKS}/b1:3181") == missing
    assert await call(admin, f"POST {RACKS}/b1:3181?group=default", RACK) == (204, "")
    assert await call(admin, f"GET {RACKS}") == (200, {"default": {"b1:3181": RACK}})
    assert await call(admin, f"GET {RACKS}/b1:3181") == (200, RACK)
    assert await call(admin, f"DELETE {RACKS}/b1:3181") == (204, "")
    assert await refusal(admin, f"DELETE {RACKS}/b1:3181") == missing
    assert await call(admin, f"GET {RACKS}") == (200, {})


async def test_bookie_leaves_its_former_group(admin: ClientSession) -> None:
    await call(admin, f"POST {RACKS}/a:1?group=g1", RACK)
    await call(admin, f"POST {RACKS}/b:1?group=g1", {"rack": "r"})
    assert await call(admin, f"POST {RACKS}/b:1?group=g2", {"rack": "/r/"}) == (204, "")
    assert await call(admin, f"GET {RACKS}") == (200, {"g1": {"a:1": RACK}, "g2": {"b:1": {"rack": "/r/"}}})


async def test_bad_rack_is_refused_and_not_stored(admin: ClientSession) -> None:
    line = f"POST {RACKS}/a:1"
    assert await refusal(admin, line, RACK) == (412, "Bookie 'group' parameters is missing")
    assert (await refusal(admin, f"{line}?group=g", {"rack": "/a/b"}))[0] == 412
    bodies: tuple[object, ...] = (None, [], {"rack": 5})
    for body in bodies:
        assert (await call(admin, f"{line}?group=g", body))[0] == 400
    assert await call(admin, f"GET {RACKS}") == (200, {})


async def test_racks_that_are_set_at_once_are_all_kept(
    admin: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MemoryMetadataStore.get

    async def slow_read(store: MemoryMetadataStore, key: str) -> Versioned | None:
        found = await read(store, key)
        # Long enough for further requests to begin, of which one comes per turn of the loop.
        for _ in range(50):
            await asyncio.sleep(0)
        return found

    # Memory answers at once, a real store does not.
    monkeypatch.setattr(MemoryMetadataStore, "get", slow_read)
    lines = [f"POST {RACKS}/b{index}:1?group=g" for index in range(10)]
    await asyncio.gather(*(call(admin, line, RACK) for line in lines))
    groups = (await call(admin, f"GET {RACKS}"))[1]
    assert isinstance(groups, dict)
    assert len(groups["g"]) == 10
