"""Fields of a room's settings come from keys, in the room's units."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from foundation.settings.fields import KeyFields, RoomSettings
from foundation.settings.keys import Key, KeyTable, Section
from foundation.settings.load import load_settings
from foundation.settings.settings import Computed, Settings
from foundation.settings.unused import UnusedKeys

ROWS = (
    Key("sizeMB", "int", 3, "MiB", doc="Size."),
    Key("waitMillis", "long", 250, "ms", doc="Wait."),
    Key("ageMinutes", "int", 2, "min", doc="Age."),
    Key("share", "double", 0.5, "share", doc="Share."),
    Key("enabled", "bool", True, doc="Switch."),
    Key("name", "string", None, doc="Name."),
    Key("computedSize", "int", None, "bytes", doc="Computed.", computed="twice sizeMB"),
    Key("planned", "int", 1, "things", doc="Without effect.", used=False),
)
TABLE = KeyTable(
    "room", [Section("All", ROWS)], unused=UnusedKeys(Path(__file__).with_name("unused_keys.tsv"))
)
RULES = {"computedSize": lambda settings: Computed(2 * settings.int("sizeMB"), "2 x sizeMB")}


def load(*overrides: str) -> Settings:
    return load_settings(TABLE, None, environ={}, overrides=overrides, rules=RULES)


key = KeyFields(TABLE, cache(load))


class Room(RoomSettings):
    label: str
    size_bytes: int = key.int("sizeMB", "bytes")
    wait_s: float = key.float("waitMillis", "s")
    wait_ns: int = key.int("waitMillis", "ns")
    age_ns: int = key.int("ageMinutes", "ns")
    share: float = key.float("share")
    enabled: bool = key.bool("enabled")
    name: str = key.str("name")
    computed: int = key.int("computedSize")
    both: str = key.rule(lambda settings: f"{settings.int('sizeMB')}/{settings.int('waitMillis')}")


def test_room_reads_its_fields_from_the_settings() -> None:
    settings = load("sizeMB=1", "waitMillis=1500", "share=0.25", "enabled=false", "name=x")
    assert Room.of(settings, label="l") == Room(
        label="l",
        size_bytes=1 << 20,
        wait_s=1.5,
        wait_ns=1_500_000_000,
        age_ns=120_000_000_000,
        share=0.25,
        enabled=False,
        name="x",
        computed=2,
        both="1/1500",
    )


def test_room_takes_defaults_from_the_table_when_a_field_is_not_given() -> None:
    room = Room(label="l", share=0.75)
    assert room == replace(Room.of(load(), label="l"), share=0.75)
    assert (room.size_bytes, room.wait_s, room.name, room.computed) == (3 << 20, 0.25, "", 6)


def test_given_field_is_not_read_from_the_settings() -> None:
    assert Room.of(load("sizeMB=1"), label="l", size_bytes=7).size_bytes == 7


def test_field_is_refused_when_it_does_not_fit_the_table() -> None:
    with pytest.raises(AssertionError, match="is not in the table of room"):
        key.int("nothing")
    with pytest.raises(AssertionError, match="share is a double"):
        key.int("share")
    with pytest.raises(AssertionError, match="must not say used=False"):
        key.int("planned")
    with pytest.raises(AssertionError, match="waitMillis in s has fractions"):
        key.int("waitMillis", "s")
    with pytest.raises(AssertionError, match="waitMillis is in ms, which is no other form of bytes"):
        key.int("waitMillis", "bytes")
