"""Properties files and environment variables become typed settings with an origin for every value.

Each process (broker, bookie, client) has one `KeyTable` and loads one `Settings` from it. This package knows no key
by name: the tables live in `broker/config`, `bookie_stub/config` and `magnetar/clients`. It imports nothing of ours.
"""
