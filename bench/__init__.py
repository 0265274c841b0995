"""Workloads through the official Python client against any Pulsar broker: `python -m bench --help`."""
