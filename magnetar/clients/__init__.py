"""Connections to a running broker: Pulsar clients and admin requests."""
