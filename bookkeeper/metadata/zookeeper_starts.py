"""The number of a broker's start in ZooKeeper, from the counter that Apache's brokers use too.

    <root>/counters/producer-name/-0000000042     ephemeral and sequential, of a broker that runs
    <root>/counters/producer-name/magnetar        keeps the node above, and with it the counter

Apache's brokers make the node above as a container, which ZooKeeper removes a while after its last child. The next start
would be number 0 again, and deduplication would take messages of one producer for those of another that had its name.
Apache's name: DistributedIdGenerator.
"""

from __future__ import annotations

from typing import Final

from kazoo.exceptions import NodeExistsError

from bookkeeper.metadata.zookeeper_requests import ZookeeperRequests

PATH: Final = "/counters/producer-name"
"""Above the nodes of the brokers that run."""
_KEEPER: Final = "magnetar"
_MARK: Final = "m"
"""After the number: Apache's brokers number names alike, and may have begun at 0 more than once."""


async def start_name(requests: ZookeeperRequests) -> str:
    """Counts this start; returns what makes its names of producers unique, also among those of Apache's brokers.

    Raises MetadataError.
    """
    client, path = requests.client, f"{requests.url.root}{PATH}"
    keeper = await requests.ask(lambda: client.create_async(f"{path}/{_KEEPER}", b"", makepath=True))
    if not keeper.refused(NodeExistsError):
        keeper.value_or_raise()
    # Asked again after a broken connection, it may take two numbers; the first is never used.
    answer = await requests.ask(lambda: client.create_async(f"{path}/-", b"", ephemeral=True, sequence=True))
    created = answer.value_or_raise()
    assert isinstance(created, str)
    return f"{int(created.rpartition('/-')[2])}{_MARK}"
