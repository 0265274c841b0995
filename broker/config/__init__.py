"""Pulsar's keys: their types, defaults per profile, and where an effective value came from."""
