"""The face for users: the command line `magnetar`."""

__version__ = "0.1.0"
