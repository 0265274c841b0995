"""The command line `magnetar`, and `magnetar.Broker` for tests of applications."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.kit.broker import Broker as Broker

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    # Imported when it is asked for: the command line starts without it.
    if name == "Broker":
        from magnetar.kit.broker import Broker

        return Broker
    raise AttributeError(f"module 'magnetar' has no attribute {name!r}")
