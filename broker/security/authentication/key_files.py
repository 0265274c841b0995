"""Reads keys as Pulsar's settings name them: a path, `file:PATH` or `data:;base64,TEXT`.

Errors are ValueErrors whose text never repeats the key.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

KEY_BYTES_MAX: Final = 1 << 20
"""Largest file of keys or passwords."""


def read_key(text: str) -> bytes:
    """Returns the bytes that `text` names or contains. Raises ValueError with the reason."""
    # Pulsar takes the text of a missing file for the key itself, in base64. Most paths are base64, so a typing error
    # would make the path, which can be guessed, the secret that signs tokens.
    if text.startswith("data:"):
        return _data_url(text)
    return _file(_path_of(text))


def key_paths(text: str) -> tuple[Path, ...]:
    """Returns the path of the file that `text` names; none for a text that contains its key."""
    if not text or text.startswith("data:"):
        return ()
    return (_path_of(text),)


def _path_of(text: str) -> Path:
    """Returns the path of `PATH`, of `file:PATH` and of `file:///PATH`."""
    if not text.startswith("file:"):
        return Path(text)
    path = text.removeprefix("file:")
    if path.startswith("//"):
        _, slash, rest = path[2:].partition("/")
        path = slash + rest
    return Path(unquote(path))


def _file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(KEY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ValueError(f"the file cannot be read: {reason}") from None
    if len(data) > KEY_BYTES_MAX:
        raise ValueError(f"the file has more than {KEY_BYTES_MAX} bytes")
    if not data:
        raise ValueError("the file is empty")
    return data


def _data_url(text: str) -> bytes:
    head, comma, body = text.removeprefix("data:").partition(",")
    if not comma:
        raise ValueError("a data: URL needs a comma in front of its data: data:;base64,TEXT")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the part after the comma is no base64") from None
