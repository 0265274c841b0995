#!/opt/magnetar/bin/python -I
"""For entry points that call `bin/apply-config-from-env.py conf/broker.conf && exec bin/pulsar broker`.

Broker and bookie read the environment themselves when they start, a variable with the name of a key, or with
`PULSAR_PREFIX_` before it. So their files are left as they are; `magnetar config show --origin` prints what holds.

Commands of clients do not read it: in `client.conf` each key that the file has gets the value of the variable of its
name. As `apply-config-from-env-with-prefix.py PREFIX FILE...` the script sets keys by variables that begin with PREFIX.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Returns 0, or 1 after one line for a file that cannot be changed."""
    prefix = words.pop(0) if "with-prefix" in Path(sys.argv[0]).name and words else ""
    names = {
        name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)
    }
    for path in map(Path, words):
        if path.name != "client.conf":
            print(
                f"{path}: left as it is, the environment is read at the start (see magnetar config show --origin)"
            )
            continue
        try:
            changed = apply(path, names, add=bool(prefix))
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            return 1
        print(f"{path}: set {', '.join(changed) or 'nothing'} by the environment")
    return 0


def apply(path: Path, values: dict[str, str], *, add: bool) -> list[str]:
    """Writes the values of keys that the file has, and with `add` of all others. Returns the keys that were set."""
    lines = path.read_text().splitlines()
    places = {
        match[1]: place for place, line in enumerate(lines) if (match := re.match(r"\s*([\w.]+)\s*=", line))
    }
    changed = sorted(key for key in values if add or key in places)
    for key in changed:
        if key in places:
            lines[places[key]] = f"{key}={values[key]}"
        else:
            lines.append(f"{key}={values[key]}")
    path.write_text("\n".join(lines) + "\n")
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
