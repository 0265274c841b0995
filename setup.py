"""Refuses an older Python before pip looks at the dependencies, whose own errors would hide the reason.

All else is in pyproject.toml.
"""

import sys

from setuptools import setup

if sys.version_info < (3, 11):  # noqa: UP036  # pip runs this file before it reads requires-python.
    sys.exit(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}: {sys.executable}")

setup()
