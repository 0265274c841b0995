"""The sentences for a start that fails at a port or at the data folder: the key, the reason, the remedy."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from foundation.settings.errors import SettingsError
from foundation.settings.settings import Settings

_PORTS: Final = (
    "brokerServicePort",
    "brokerServicePortTls",
    "webServicePort",
    "webServicePortTls",
    "magnetarHealthPort",
)
_LISTENS: Final = "0A"
"""State of a listening socket in /proc/net/tcp."""


def check_data_folder(settings: Settings) -> None:
    """Makes the data folder. Raises SettingsError when it is a file, or cannot be written."""
    key = "magnetarDataDirectory"
    folder = Path(settings.str(key)).absolute()
    remedy = "name a folder that this user can write, with --data"
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: this is a file; {remedy}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: {error.strerror}; {remedy}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: Permission denied; {remedy}")


def start_error(error: Exception, settings: Settings) -> str:
    """Returns the error's text; of a port in use with its key, the process that has it where known, and the remedy."""
    text = str(error)
    if "address already in use" not in text.lower():
        return text
    for key in _PORTS:
        port = settings.optional_int(key)
        if port and re.search(rf"\b{port}\b", text):
            holder = _holder(port)
            return (
                f"{settings.origin(key)}: {key}={port}: the port is in use{holder and f' by {holder}'};"
                f" stop that process, or take another port with --set {key}=PORT (0: any free one)"
            )
    return text


def _holder(port: int) -> str:
    """Returns `process 123 (name)` of the process that listens; empty where the system does not tell."""
    links = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").glob("[0-9]*") if links else ():
        # A process may end meanwhile, and those of other users do not show their files: the next one may be it.
        with suppress(OSError):
            if any(os.readlink(one) in links for one in (folder / "fd").iterdir()):
                return f"process {folder.name} ({(folder / 'comm').read_text().strip()})"
    return ""


def _inodes(port: int) -> list[str]:
    lines = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    return [line[9] for line in lines if line[3] == _LISTENS and line[1].endswith(f":{port:04X}")]
