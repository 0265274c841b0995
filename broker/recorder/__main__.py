"""`python -m broker.recorder replay DIR…`"""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    if not argv or argv[0] != "replay":
        print("usage: python -m broker.recorder replay DIR...", file=sys.stderr)
        return 2
    try:
        from broker.recorder import replay_command
    except ImportError as error:
        print(f"{error.name} is not installed: pip install 'magnetar[record]'", file=sys.stderr)
        return 2
    return replay_command.main(argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
