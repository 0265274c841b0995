"""Typed settings from files and environment, each value with its origin.

Each process (broker, bookie, client) has one `KeyTable` and loads one `Settings` from it. This package knows no key
by name: the tables live in `broker/config`, `bookie_stub/config` and `magnetar/clients`. It imports nothing of ours.
"""
