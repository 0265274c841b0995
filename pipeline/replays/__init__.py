"""Replays access records under other settings: the broker's cache receives the same requests again."""
