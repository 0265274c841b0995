"""The sentences for a start that fails at a port or at a folder: the key, the reason, the remedy."""

from __future__ import annotations

import errno
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
    "bookiePort",
    "prometheusStatsHttpPort",
)
_FOLDERS: Final = (
    "journalDirectories",
    "journalDirectory",
    "ledgerDirectories",
    "indexDirectories",
    "magnetarDataDirectory",
)
"""The last one holds the folders that have no key of their own."""
_UNUSABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)
_REMEDY: Final = "name a folder that this user can write, with --data"
_LISTENS: Final = "0A"
"""State of a listening socket in /proc/net/tcp."""


def check_data_folder(settings: Settings) -> None:
    """Makes the data folder. Raises SettingsError when it is a file, or cannot be written."""
    key = "magnetarDataDirectory"
    folder = Path(settings.str(key)).absolute()
    if folder.exists() and not folder.is_dir():
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: this is a file; {_REMEDY}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: {error.strerror}; {_REMEDY}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingsError(f"{settings.origin(key)}: {key}={folder}: Permission denied; {_REMEDY}")


def check_ready_file(path: Path) -> None:
    """Raises SettingsError when the ready file could not be written at the end of the start."""
    remedy = "name a file in a folder that this user can write, with --ready-file"
    folder = path.absolute().parent
    if path.is_dir():
        raise SettingsError(f"--ready-file {path}: this is a folder; {remedy}")
    if not folder.is_dir():
        raise SettingsError(f"--ready-file {path}: there is no folder {folder}; {remedy}")
    if not os.access(path if path.is_fifo() else folder, os.W_OK):
        raise SettingsError(f"--ready-file {path}: Permission denied; {remedy}")


def start_error(error: Exception, *tables: Settings) -> str:
    """Returns the error's text; for a port in use or an unusable folder the key, the reason and the remedy.

    The port's process is named where it is known. `tables` are those of all servers in the process.
    """
    for settings in tables:
        found = _of_port(str(error), settings) or (
            _of_folder(error, settings) if isinstance(error, OSError) else ""
        )
        if found:
            return found
    return str(error)


def _of_port(text: str, settings: Settings) -> str:
    if "address already in use" not in text.lower():
        return ""
    for key in _PORTS:
        port = settings.optional_int(key) if key in settings.table.keys else None
        if port and re.search(rf"\b{port}\b", text):
            holder = _holder(port)
            return (
                f"{settings.origin(key)}: {key}={port}: the port is in use{holder and f' by {holder}'};"
                f" stop that process, or take another port with --set {key}=PORT (0: any free one)"
            )
    return ""


def _of_folder(error: OSError, settings: Settings) -> str:
    if error.errno not in _UNUSABLE or error.filename is None:
        return ""
    failed = Path(os.fsdecode(error.filename)).absolute()
    for key in _FOLDERS:
        # Folders that no source has set lie in the data folder.
        if settings.is_set(key) or (key == _FOLDERS[-1] and key in settings.table.keys):
            value = settings.value(key)
            for folder in value if isinstance(value, tuple) else (str(value),):
                path = Path(folder).absolute()
                if path == failed or path in failed.parents or failed in path.parents:
                    remedy = (
                        _REMEDY if key == _FOLDERS[-1] else _REMEDY.replace("--data", f"--set {key}=FOLDER")
                    )
                    return f"{settings.origin(key)}: {key}={folder}: {failed}: {error.strerror}; {remedy}"
    return ""


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
