"""Policies of namespaces and topics: the table of all of them, and the forms of their values.

`table.py` has one row per policy. REST routes, stored values, limits in force and the reference page read the same row.
"""
