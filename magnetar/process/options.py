"""What `magnetar standalone` and `magnetar broker` were asked to do, as one value.

This is all that the command line hands to the composition root. Law of the place: plain data, nothing of
ours imported, no default hidden in the reader: what the user left out is `None` or empty here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["standalone", "broker"]


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Options of a broker process, before any configuration file was read."""

    role: Role
    config_path: Path | None
    """The file of `-c`; `None`: the role's own file in `conf/` if it is there."""
    data: Path | None
    """Folder of everything that is kept; `None`: the configured one."""
    memory: bool
    """Nothing on disk, for tests."""
    overrides: tuple[str, ...]
    """`key=value`, in the order given; the last one of a key wins, and all win over file and environment."""
    ready_file: Path | None
    """Written when clients can connect: `{"pulsar": url, "admin": url, "pid": n}`."""
    profile: str | None
    """Whose defaults count: `4.0`, `4.2` or `5.0`."""
    wipe_data: bool
    """Empty the data folder first."""
