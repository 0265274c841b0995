"""The commands of `magnetar`, one module each."""
