"""Measurements, one question per module; `python -m bench --help` compares brokers under the official client.

Modules with a command of their own name it in the second paragraph of their docstring; the others are parts of those.
"""
