"""Flips bits in the files of a stopped broker, as a worn disk does."""

from __future__ import annotations

from pathlib import Path

from tests.bookie_stub.files import flip


def flip_in(folder: Path, pattern: str, text: bytes) -> Path:
    """Changes one bit inside the text, in the one file of that pattern that has it. Returns the file."""
    for path in sorted(folder.rglob(pattern)):
        at = path.read_bytes().find(text)
        if at >= 0:
            flip(path, at + len(text) // 2)
            return path
    raise AssertionError(f"no {pattern} below {folder} has {text!r}")
