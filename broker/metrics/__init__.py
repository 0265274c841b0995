"""Prints the numbers that the rooms count in the text format of Prometheus."""
