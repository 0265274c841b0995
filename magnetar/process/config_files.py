"""The configuration file of each role: the environment variable that names it, and the file in `conf/`.

The servers, `magnetar config show` and the client commands find their file here, so all agree on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from foundation.settings.settings import Note

FILES: Final = {
    "standalone": ("PULSAR_STANDALONE_CONF", "conf/standalone.conf"),
    "broker": ("PULSAR_BROKER_CONF", "conf/broker.conf"),
    "bookie": ("PULSAR_BOOKKEEPER_CONF", "conf/bookkeeper.conf"),
    "client": ("PULSAR_CLIENT_CONF", "conf/client.conf"),
}
"""By role: the variable that names the file, and the file that is read without the variable, if it exists."""


def refuse_unknown_keys(notes: Sequence[Note]) -> None:
    """Raises SettingsError for a key that no program of Pulsar or Magnetar knows."""
    if not any(note.unknown for note in notes):
        return
    # Imported here: a start without such a key needs the tables of its own role alone.
    from bookie_stub.config.keys import BOOKIE_KEYS
    from broker.config.keys import BROKER_KEYS
    from foundation.settings.load import refuse_unknown
    from magnetar.process.client_keys import CLIENT_KEYS

    refuse_unknown(notes, (BROKER_KEYS, BOOKIE_KEYS, CLIENT_KEYS))


def default_file(role: str, environ: Mapping[str, str]) -> Path | None:
    """Returns the file that is read without `--conf`, None when there is none.

    A file that the variable names is returned even if it is missing: reading it then fails with its name.
    """
    variable, ours = FILES[role]
    if environ.get(variable):
        return Path(environ[variable])
    return Path(ours) if Path(ours).is_file() else None
