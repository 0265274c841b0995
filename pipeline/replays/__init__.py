"""Replays of access records under other settings: what the broker's cache would have made of the same requests."""
