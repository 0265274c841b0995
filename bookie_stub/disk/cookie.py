r"""The cookie: names the owner of a directory's data (BookKeeper: `Cookie`).

It is the file `VERSION` in every `current`.

```
5
bookieHost: "host:port"
journalDir: "path,path"
ledgerDirs: "2\tpath\tpath"          a backslash and a t, not a tab
instanceId: "id of the cluster"
indexDirs: "2\tpath\tpath"
```

All directories of a bookie carry the same cookie. It protects against two mistakes that would serve wrong answers
without an error: a directory of another bookie, and directories in another number or order, as a ledger's home is its id
modulo their number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bookie_stub.base.errors import ForeignDirectory

COOKIE_FILE = "VERSION"
"""The cookie's file in each `current`."""
_LAYOUT = 5
"""The first line: BookKeeper's version of this format."""
_LINE = re.compile(r'(bookieHost|journalDir|ledgerDirs|instanceId|indexDirs): ".*"\n')
_INSTANCE = re.compile(r'^instanceId: "(.*)"$', re.MULTILINE)
_TAB = "\\t"


class Configured(NamedTuple):
    """The directories as the settings name them. Their number and order are part of the data."""

    journals: Sequence[Path]
    """`journalDirectories`"""
    ledgers: Sequence[Path]
    """`ledgerDirectories`"""
    indexes: Sequence[Path]
    """`indexDirectories`, as many as `ledgers`."""


class HomeCluster(Protocol):
    """A bookie's cluster, as far as its directories must fit it. `cluster/registration.py` is one."""

    instance_id: str
    """The id that the cluster got when its metadata was made."""

    @property
    def cookie(self) -> str | None:
        """The cluster's cookie of this bookie, None for a new bookie."""
        ...

    def keep_cookie(self, cookie: str) -> None:
        """Stores the cookie of a new bookie."""
        ...


def cookie_text(bookie_id: str, instance_id: str, configured: Configured) -> str:
    """Returns the cookie of a new bookie."""
    return (
        f'{_LAYOUT}\nbookieHost: "{bookie_id}"\njournalDir: "{",".join(map(str, configured.journals))}"\n'
        f'ledgerDirs: "{_counted(configured.ledgers)}"\ninstanceId: "{instance_id}"\n'
        f'indexDirs: "{_counted(configured.indexes)}"\n'
    )


def check_layout(cookie: str) -> None:
    """Raises ForeignDirectory for a cookie in another version of the format."""
    lines = cookie.splitlines()
    if not lines or lines[0] != str(_LAYOUT):
        raise ForeignDirectory(f"{COOKIE_FILE} has layout version {lines[:1]}, not {_LAYOUT}")


def check_order(cookie: str, configured: Configured) -> None:
    """Raises ForeignDirectory when the directories changed their number or their places.

    A directory may be moved to another path: only a path that the cookie has at another place is refused.
    """
    here_by_name = {
        "journalDir": configured.journals,
        "ledgerDirs": configured.ledgers,
        "indexDirs": configured.indexes,
    }
    for line in cookie.splitlines():
        name, _, value = line.partition(": ")
        if name not in here_by_name:
            continue
        value = value.strip('"')
        kept = value.split(",") if name == "journalDir" else value.split(_TAB)[1:]
        here = [str(path) for path in here_by_name[name]]
        moved = [
            # A new path may be a directory that was moved, which is allowed; a known path at another place is a mix-up.
            path
            for place, path in enumerate(here)
            if path in kept and kept[place : place + 1] != [path]
        ]
        if len(kept) != len(here) or moved:
            raise ForeignDirectory(
                f"{name} are {', '.join(here)}, but this bookie began with {', '.join(kept)}:"
                " their number and order must stay, ledgers are found by them"
            )


def check_cookie(path: Path) -> None:
    """Raises ForeignDirectory, with the offset, for a line that no cookie has."""
    cookie = path.read_text(errors="replace")
    offset = 0
    for number, line in enumerate(cookie.splitlines(keepends=True)):
        if not (_LINE.fullmatch(line) if number else line == f"{_LAYOUT}\n"):
            raise ForeignDirectory(f"{path} at {offset}: {line[:60]!r} is no line of a cookie")
        offset += len(line.encode())


def instance_of(path: Path) -> str:
    """Returns the cluster's instance id in a cookie file.

    Raises OSError, and ForeignDirectory for a cookie without one.
    """
    found = _INSTANCE.search(path.read_text(errors="replace"))
    if found is None:
        raise ForeignDirectory(f'{path} has no line instanceId: "..."')
    return found[1]


def is_of_cluster(cookie: str, cluster: HomeCluster) -> bool:
    """Returns whether a cookie names the cluster's instance id."""
    return f'instanceId: "{cluster.instance_id}"\n' in cookie


def _counted(paths: Sequence[Path]) -> str:
    return _TAB.join([str(len(paths)), *map(str, paths)])
