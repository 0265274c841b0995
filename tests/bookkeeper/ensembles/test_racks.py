"""The choice of bookies by groups and racks."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from bookkeeper.ensembles.racks import CUSTOM_KEY, Affinity, BookieRacks, Placement, Racks, affinity_of
from bookkeeper.metadata.memory_metadata_store import MemoryMetadataStore

GROUPS: Racks = {
    "g1": {"a": {"rack": "/r1"}, "b": {"rack": "/r2"}},
    "g2": {"c": {"rack": "/r1"}, "d": {"rack": "/r2"}},
    "g3": {"e": {"rack": "/r1"}},
}
BOOKIES = ["f", "e", "d", "c", "b", "a"]
"""In turn; nobody has given `f` a group."""


def place(affinity: Affinity | None, racks: Racks = GROUPS) -> Placement:
    return Placement(racks, affinity, (None, None), 2)


@pytest.mark.parametrize(
    ("primary", "secondary", "count", "expected"),
    [
        ("g1", "", 2, "ba"),
        ("g1", "g2", 2, "ba"),
        ("g1", "g2", 3, "dcba"),
        ("g1,g2", "g3", 4, "dcba"),
        ("g1", "", 3, "fba"),
        ("g3", "g2", 4, "fedc"),
        ("missing", "g2", 1, "dc"),
        ("missing", "", 1, "f"),
        ("*", "", 1, "fedcba"),
    ],
)
def test_primary_groups_are_taken_then_secondary_ones_then_bookies_without_a_group(
    primary: str, secondary: str, count: int, expected: str
) -> None:
    assert "".join(place(Affinity.of(primary, secondary)).allowed(BOOKIES, count)) == expected


def test_every_bookie_is_allowed_without_an_affinity() -> None:
    assert place(None).allowed(BOOKIES, 1) == BOOKIES
    assert Affinity.of("", None) is None


def test_neighbours_are_in_different_racks_where_there_are_some() -> None:
    racks: Racks = {"g": {f"b{number}": {"rack": f"/r{number // 4}"} for number in range(12)}}
    rng = random.Random(7)
    for _ in range(200):
        size = rng.randint(2, 6)
        quorum = rng.randint(1, min(3, size))
        bookies = [f"b{number}" for number in rng.sample(range(12), 12)]
        chosen = Placement(racks, None, (None,) * size, quorum).spread(bookies, size)
        assert len(set(chosen)) == size
        # Three racks are enough for two copies of a ring whose size is known; for three where it is a multiple of three.
        if quorum == 2 or (quorum == 3 and size % 3 == 0):
            for start in range(size):
                near = {int(chosen[(start + step) % size][1:]) // 4 for step in range(quorum)}
                assert len(near) == quorum, chosen


def test_replacement_is_in_another_rack_than_the_members_that_stay() -> None:
    racks: Racks = {
        "g": {"a": {"rack": "r1"}, "b": {"rack": "/r2/"}, "c": {"rack": "/r1"}, "d": {"rack": "r2"}}
    }
    assert Placement(racks, None, ("a", None), 2).spread(["c", "d"], 1) == ("d",)
    assert Placement(racks, None, ("a", None), 1).spread(["c", "d"], 1) == ("c",), "no entry is on both"
    assert Placement(racks, None, ("a", None), 2).spread(["c"], 1) == ("c",), (
        "one rack is better than no copy"
    )
    assert Placement(racks, None, (None, None), 2).spread(["c"], 2) == ("c",)


def test_turn_decides_without_racks() -> None:
    assert place(None, {}).spread(BOOKIES, 2) == ("f", "e")


def test_ledger_names_its_groups_as_pulsar_does() -> None:
    affinity = Affinity.of("g2, g1", "g3")
    assert affinity is not None
    custom = affinity.custom()
    assert json.loads(custom[CUSTOM_KEY]) == {
        "policyClass": "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy",
        "properties": {"isolationBookieGroups": "g1,g2", "secondaryIsolationBookieGroups": "g3"},
    }
    assert affinity_of(custom) == affinity
    for other in (b"{}", b"[]", b"\xff", b'{"properties":null}', b'{"properties":{}}'):
        assert affinity_of({CUSTOM_KEY: other}) is None
    assert affinity_of({}) is None


async def test_racks_that_another_process_stores_are_obeyed() -> None:
    store = MemoryMetadataStore()
    racks, others = BookieRacks(store.another()), BookieRacks(store)
    await racks.open()
    await others.open()
    await others.change(lambda before: {**before, "g": {"a": {"rack": "/r"}}})
    for _ in range(100):
        await asyncio.sleep(0)
    assert racks.place({}, (None,), 1).racks == {"g": {"a": {"rack": "/r"}}}
    await racks.close()
    await others.close()
