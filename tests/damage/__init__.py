"""Damaged files and full disks: real brokers on real files that lack or change some bytes."""
