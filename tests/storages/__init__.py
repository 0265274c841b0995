"""The broker's interop tests on each storage: the embedded bookie, a bookie of ours over TCP, an Apache bookie."""
