"""Versioned values that outlive the process and are no messages."""
