"""Rules for computed values that the tables of broker and bookie share.

A rule is a function of the settings. It returns the value of a key whose default is unset, and the facts that the
value comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from foundation.settings.settings import Computed, Settings

Rule = Callable[[Settings], Computed]

_USUAL_BYTES: Final = 64 << 10
_USUAL_BYTES_MAX: Final = 1 << 20


def share_of_memory(percent: int, at_least: int = 1) -> Rule:
    """Makes a rule for a share of direct memory, in MiB."""
    return lambda settings: memory_share(settings, percent, at_least)


def memory_share(settings: Settings, percent: int, at_least: int) -> Computed:
    """Computes a share of direct memory, at least `at_least` MiB."""
    mebibytes, source = settings.memory.mebibytes, settings.memory.source
    size = max(mebibytes * percent // 100, at_least)
    return Computed(size, f"{percent} % of {mebibytes} MiB ({source}), at least {at_least}")


def value_of(name: str) -> Rule:
    """Makes a rule that takes the value of another key."""

    def value(settings: Settings) -> Computed:
        other = settings.value(name)
        assert other is not None, f"{name} is unset"
        return Computed(other, name)

    return value


def host_name(settings: Settings) -> Computed:
    """Computes this machine's full name; may ask a name server."""
    import socket  # Imported here because only a process without advertisedAddress pays for it.

    return Computed(socket.getfqdn(), "host name")


def receive_sizes(settings: Settings, *names: str) -> tuple[int, int, int] | None:
    """Returns smallest, first and largest read of a connection in bytes, by these three keys; None while all are 0.

    A size that is not given is BookKeeper's, or as near to it as the others allow. Raises SettingsError for sizes that
    fall.
    """
    given = [settings.int(name) for name in names]
    if not any(given):
        return None
    least, first, most = given
    most = most or max(_USUAL_BYTES_MAX, least, first)
    least = least or min(_USUAL_BYTES, first or most, most)
    first = first or min(max(_USUAL_BYTES, least), most)
    if not least <= first <= most:
        name = names[0] if least > first else names[1]
        sizes = f"{names[0]} ({least}), {names[1]} ({first}) and {names[2]} ({most})"
        raise settings.error(name, f"{sizes} may not fall: raise the last or lower the first")
    return least, first, most
