"""ZookeeperError, and the check that kazoo, the client library, is installed.

kazoo is an optional dependency. Modules that import it stand beside this one (`session`, `nodes`) and are imported by a
function that has called `require_kazoo`, so that a missing package is one clear line instead of a traceback.
"""

from __future__ import annotations

from importlib.util import find_spec


class ZookeeperError(Exception):
    """ZooKeeper cannot be reached, or refused a request. The text names the servers or the request, and the reason."""


def require_kazoo(key: str) -> None:
    """Raises ZookeeperError when kazoo is missing. `key`: the setting that asks for ZooKeeper, for the text."""
    if find_spec("kazoo") is None:
        raise ZookeeperError(f"{key}: the package kazoo is missing; pip install 'WHEEL[zookeeper]'")
