"""Pulsar's WebSocket API: sessions that speak JSON and use the service itself, without a client inside."""
