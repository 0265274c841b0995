"""The wire languages, Pulsar's and BookKeeper's: bytes in, values out, no I/O and no clock."""
