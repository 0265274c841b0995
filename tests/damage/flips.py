"""Flips bits in the files of a stopped broker, as a worn disk does."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, offset: int) -> None:
    """Changes one bit of the byte at the offset."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 0x10,)))


def flip_in(folder: Path, pattern: str, text: bytes) -> Path:
    """Changes one bit inside the text, in the one file of that pattern that has it. Returns the file."""
    for path in sorted(folder.rglob(pattern)):
        at = path.read_bytes().find(text)
        if at >= 0:
            flip(path, at + len(text) // 2)
            return path
    raise AssertionError(f"no {pattern} below {folder} has {text!r}")
