"""The moving pictures of the removal queue are current, tell the recorded story, and obey the reader's system."""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

import pytest

from tests.vectors.eviction import EvictionReplay
from tests.vectors.folder import vectors_folder
from tests.vectors.queue_frames import frames_of, rows_of
from tests.vectors.queue_pictures import FOLDER, SCRIPTS, pictures
from tests.vectors.scripts import Op, read_scripts, run_script

SIZE_MAX: Final = 60_000
"""Bytes of a picture: pages show several."""
DRAWN: Final = pictures()


def script(name: str, profile: str = "4.2") -> Op:
    return next(
        found for found in read_scripts(SCRIPTS) if (found["name"], found["profile"]) == (name, profile)
    )


@pytest.mark.parametrize("name", DRAWN)
def test_committed_pictures_are_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == DRAWN[name], "run `make generate`"


def test_pictures_and_files_are_the_same() -> None:
    assert {path.name for path in FOLDER.glob("*.svg")} == set(DRAWN)


def test_scripts_are_golden_scripts() -> None:
    golden = {
        line
        for profile in ("4.2", "5.0")
        for line in (vectors_folder() / "eviction" / f"hand-{profile}.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    }
    assert set(SCRIPTS.read_text(encoding="utf-8").splitlines()) <= golden


def test_queue_decides_as_the_scripts_recorded() -> None:
    assert [wrong for found in read_scripts(SCRIPTS) if (wrong := run_script(found, EvictionReplay))] == []


def test_picture_of_another_decision_is_refused() -> None:
    changed = script("plain_fifo_size")
    changed["ops"][-1]["expect"]["removed"].reverse()
    with pytest.raises(ValueError, match="plain_fifo_size: operation 12 differs from the record: removed"):
        frames_of(changed)


def test_frames_show_each_visit_of_a_pass() -> None:
    frames = frames_of(script("expired_expected_reads_requeue_cap"))
    assert [frame.text for frame in frames] == [
        "Insert 0: 2 reads expected",
        "Insert 1: not counted",
        "Time pass: 0 is requeued, 2 reads expected",
        "Time pass: 1 is removed, not counted",
        "Time pass: 0 is requeued, 2 reads expected",
        "Time pass: 0 is requeued, 2 reads expected",
        "Time pass: 0 is removed, its requeues are used up",
    ]
    assert [[slot.requeues for slot in frame.queue] for frame in frames] == [
        [0],
        [0, 0],
        [0, 1],
        [1],
        [2],
        [3],
        [],
    ]


def test_rows_summarise_the_steps() -> None:
    def rows(profile: str) -> list[str]:
        found = rows_of(frames_of(script("size_pass_burns_protection", profile)))
        return [f"{row.text}: {row.outcome}" for row in found]

    assert rows("4.2")[1] == "1-byte size pass: 5 rounds, then 0 is removed"
    assert rows("5.0")[1] == "1-byte size pass: 1 round, then 0 is removed"


@pytest.mark.parametrize("name", DRAWN)
def test_picture_is_small_well_formed_and_moves_only_for_those_who_want_it(name: str) -> None:
    text = DRAWN[name]
    assert len(text) < SIZE_MAX
    root = ElementTree.fromstring(text)
    described = {child.tag.rpartition("}")[2]: child.text for child in root}
    assert described["title"]
    assert described["desc"]
    assert "@media(prefers-reduced-motion:reduce){*{animation:none!important}}" in text
    assert "@media(prefers-color-scheme:dark)" in text
    used, defined = set(re.findall(r"animation-name:(\w+)", text)), set(re.findall(r"@keyframes (\w+)", text))
    assert used == defined
