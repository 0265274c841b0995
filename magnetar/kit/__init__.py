"""A kit for tests of applications: a broker as a context manager, its clock, its faults, and a pytest plugin.

These modules import the standard library alone, `spark` excepted, which needs PySpark. The broker runs in a process of
its own, so a test's process needs nothing else of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.kit.broker import Broker, BrokerFailedError
    from magnetar.kit.controls import Clock, Fault, Faults

__all__ = ["Broker", "BrokerFailedError", "Clock", "Fault", "Faults"]


def __getattr__(name: str) -> object:
    # Imported when it is asked for: pytest imports this package at each start, for the plugin.
    if name not in __all__:
        raise AttributeError(f"module 'magnetar.kit' has no attribute {name!r}")
    from magnetar.kit import broker, controls

    return getattr(broker if name.startswith("Broker") else controls, name)
