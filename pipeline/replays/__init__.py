"""Replays access records under other settings. The broker's cache receives the same requests again."""
