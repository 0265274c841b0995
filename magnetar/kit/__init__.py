"""A kit for tests of applications: a broker as a context manager, its clock, its faults, and a pytest plugin.

These modules import the standard library alone. The broker runs in a process of its own, so a test's process needs
nothing else of this package.
"""

from magnetar.kit.broker import Broker, BrokerFailedError
from magnetar.kit.controls import Clock, Fault, Faults

__all__ = ["Broker", "BrokerFailedError", "Clock", "Fault", "Faults"]
