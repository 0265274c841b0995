"""Writes constraints.txt: every package that the project installs, with its version and hashes.

Two parts in one file. Above the line `# development` is what a running broker, on ZooKeeper too, and the demo need;
`make run` installs that part alone. Below it is what tests, linters and generators need on top. One resolution for all
Pythons from 3.11 on; neither registries nor paths are named. Run by `make constraints`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIVIDER = "# development"
HEAD = """\
# Written by `make constraints` (.ci/pin.py) from pyproject.toml. To be installed with --require-hashes.
"""
UV = ("uv", "pip", "compile", "-q", "--universal", "--python-version", "3.11", "--generate-hashes")
QUIET = ("--no-emit-index-url", "--no-header", "--no-annotate")
EXTRAS = "--no-strip-extras"
"""Without the extra in its pin, pip 23 looks for the newest `coverage[toml]` and refuses it as not pinned."""
BUILD = "setuptools>=77\n"
"""The project itself is installed without build isolation, so its build backend is a pin like the others."""


def compile_pins(extras: tuple[str, ...], constraints: Path | None) -> dict[str, str]:
    """Name of each package to its lines in the file."""
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build.in"
        build.write_text(BUILD)
        command = [sys.executable, "-m", *UV, *QUIET, EXTRAS, "pyproject.toml", str(build)]
        for extra in extras:
            command += ["--extra", extra]
        if constraints is not None:
            command += ["--constraints", str(constraints)]
        text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    pins: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            name = line.partition("==")[0].partition("[")[0]
        pins[name] = pins.get(name, "") + line + "\n"
    return pins


def main() -> int:
    run = compile_pins(("client", "zookeeper"), None)
    with tempfile.TemporaryDirectory() as folder:
        fixed = Path(folder) / "run.txt"
        fixed.write_text("".join(run.values()))
        everything = compile_pins(("client", "dev", "docs", "spark"), fixed)
    # The whole resolution's lines in both parts: a marker of the first part can be too narrow for the second.
    first = "".join(lines for name, lines in everything.items() if name in run)
    more = "".join(lines for name, lines in everything.items() if name not in run)
    (ROOT / "constraints.txt").write_text(f"{HEAD}{first}{DIVIDER}\n{more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
