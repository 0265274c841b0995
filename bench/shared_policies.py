"""The time after which a policy that one broker sets acts at another broker on the same ZooKeeper.

`MAGNETAR_PULSAR_HOME=... python -m bench.shared_policies [--changes 200]`

Both brokers are in this process, each with a session of its own. A change begins with the call at the first broker, and ends
when the second one has the value in force. The home of an Apache Pulsar distribution has the ZooKeeper, which needs Java.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from bookkeeper.metadata.zookeeper_metadata_store import ZookeeperMetadataStore
from foundation.zookeeper.url import ZookeeperUrl
from tests.support.java import ZooKeeper
from tests.support.memory_broker import memory_broker

NAMESPACE: Final = "public/default"
POLICY: Final = "message_ttl_in_seconds"


async def measure(address: str, changes: int) -> list[float]:
    """Returns the milliseconds of each change."""
    url = ZookeeperUrl(address, "/policies")
    stores = [await ZookeeperMetadataStore.open(url, session_timeout_s=30, timeout_s=60) for _ in range(2)]
    found = []
    async with memory_broker(metadata=stores[0]) as one, memory_broker(metadata=stores[1]) as other:
        for number in range(1, changes + 1):
            began = time.perf_counter()
            await one.namespaces.set_policy(NAMESPACE, POLICY, number)
            while other.namespaces.policy(NAMESPACE, POLICY) != number:  # noqa: ASYNC110  # Nothing tells of it.
                await asyncio.sleep(0.0005)
            found.append((time.perf_counter() - began) * 1e3)
    return found


def main() -> None:
    """Starts ZooKeeper and prints one line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeper(f"{os.environ['MAGNETAR_PULSAR_HOME']}/lib/*", Path(folder))
        zookeeper.start()
        try:
            found = asyncio.run(measure(zookeeper.address, arguments.changes))
        finally:
            zookeeper.stop()
    print(f"{len(found)} changes: {statistics.median(found):.1f} ms median, {max(found):.1f} ms at most")


if __name__ == "__main__":
    main()
