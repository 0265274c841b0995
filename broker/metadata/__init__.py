"""Versioned keys and values for what must outlive the process but is not a message."""
