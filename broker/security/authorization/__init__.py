"""Decides which actions a role may take, by Pulsar's rules; pure functions over permissions that are in memory."""
