"""The broker's rooms joined into one running service."""
