"""The broker: rooms from `model` up to `net`, joined by `broker_service`; see docs/architecture.md."""
