"""Limits: rates of publishing, delivering and subscribing, and unacknowledged messages of the whole broker."""
