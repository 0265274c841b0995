"""The tests that have a broker process, on each storage: the embedded bookie, ours over TCP, Apache's."""
