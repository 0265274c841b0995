"""The properties language that broker, bookie and client share: files, environment, typed tables of keys.

A process has one `KeyTable` (data) and loads one `Settings` (values with their origins) from it; what a
key is used for is no business of this package. Imports nothing of ours.
"""
