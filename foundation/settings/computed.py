"""Rules for computed values that the tables of broker and bookie share.

A rule is a function of the settings. It returns the value of a key whose default is unset, and the facts that the
value comes from.
"""

from __future__ import annotations

from collections.abc import Callable

from foundation.settings.settings import Computed, Settings

Rule = Callable[[Settings], Computed]


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
