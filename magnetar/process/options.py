"""The options of `magnetar standalone` and `magnetar broker` as one value.

The command line passes this value, and nothing else, to the composition root. It is plain data without defaults: an
option that the user left out is `None`, empty or False, and the composition root decides what follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from foundation.value import Value

if TYPE_CHECKING:
    from foundation.settings.load import Override

Role = Literal["standalone", "broker"]
"""The kinds of process with a broker in it: with a bookie inside, or without."""


class BrokerOptions(Value):
    """Options of a broker process, before any configuration file was read."""

    role: Role
    """Decides the configuration file, and if a bookie runs inside."""
    config_path: Path | None
    """The file of `-c`; None means `default_file` of the role."""
    data: Path | None
    """Folder of everything that is kept; None means `magnetarDataDirectory`."""
    memory: bool
    """Keep nothing on disk, for tests."""
    overrides: tuple[Override, ...]
    """Of `--set` and `-a`, in the order given; the last one of a key wins, and all win over file and environment."""
    ready_file: Path | None
    """Written when clients can connect: `{"pulsar": url, "admin": url, "pid": n}`."""
    profile: str | None
    """The Pulsar release whose defaults hold: `4.0`, `4.2` or `5.0`; None means the configured one."""
    wipe_data: bool
    """Empty the data folder first."""
    test_faults: bool
    """Let a test advance the clock and set faults, over HTTP."""
    until_eof: bool
    """Stop at the end of standard input, so that the broker ends with the process that started it."""
    allow_unknown_keys: bool
    """Start in spite of keys that neither Pulsar nor Magnetar knows."""
