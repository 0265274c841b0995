#!/opt/magnetar/bin/python -I
"""For entry points that call `bin/apply-config-from-env.py conf/broker.conf && exec bin/pulsar broker`.

Broker and bookie read the environment themselves when they start, a variable with the name of a key, or with
`PULSAR_PREFIX_` before it. So their files are left as they are; `magnetar config show --origin` prints what holds.

Commands of clients do not read it: in `client.conf` each key that the file has gets the value of the variable of its
name, and each variable `PULSAR_PREFIX_<key>` sets its key, also one that the file does not have. As
`apply-config-from-env-with-prefix.py PREFIX FILE...` the script sets keys by variables that begin with PREFIX.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    """Returns 0, or 1 after one line for a file that cannot be changed."""
    prefix = words.pop(0) if "with-prefix" in Path(sys.argv[0]).name and words else ""
    added = _with_prefix(prefix or "PULSAR_PREFIX_")
    for path in map(Path, words):
        if path.name != "client.conf":
            print(
                f"{path}: left as it is, the environment is read at the start (see magnetar config show --origin)"
            )
            continue
        try:
            changed = apply(path, {} if prefix else dict(os.environ), added)
        except (OSError, UnicodeError) as error:
            print(f"{path}: {getattr(error, 'strerror', None) or 'it is no text in UTF-8'}", file=sys.stderr)
            return 1
        print(f"{path}: set {', '.join(changed) or 'nothing'} by the environment")
    return 0


def _with_prefix(prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): value
        for name, value in os.environ.items()
        if name.startswith(prefix) and name != prefix
    }


def apply(path: Path, known: dict[str, str], added: dict[str, str]) -> list[str]:
    """Writes the values of `known` keys that the file has, and those of `added`. Returns the keys that were set."""
    lines = path.read_text().splitlines()
    places = {
        match[1]: place for place, line in enumerate(lines) if (match := re.match(r"\s*([\w.]+)\s*=", line))
    }
    values = {**{key: value for key, value in known.items() if key in places}, **added}
    changed = sorted(values)
    for key in changed:
        if key in places:
            lines[places[key]] = f"{key}={values[key]}"
        else:
            lines.append(f"{key}={values[key]}")
    path.write_text("\n".join(lines) + "\n")
    return changed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
