"""Policies of topics that three brokers on one ZooKeeper change at once: each change is made, and every broker sees it."""

from __future__ import annotations

import itertools
import urllib.error
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.interop.support import Admin, wait_until
from tests.interop.test_cluster import Brokers
from tests.support.java import ZooKeeper

pytestmark = [pytest.mark.peer, pytest.mark.slow]

TOPICS: Final = 24
ROUNDS: Final = 10
SCOPE: Final = "persistent/public/default"


@pytest.fixture
def admins(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[list[Admin]]:
    brokers = Brokers(tmp_path, zookeeper, 3)
    brokers.cluster.start_bookie()
    with ExitStack() as stack:
        stack.callback(brokers.cluster.kill)
        for broker in brokers.brokers:
            stack.callback(broker.kill)
            broker.start()
        yield [Admin(broker.addresses.admin) for broker in brokers.brokers]


def asked_at_once(
    admins: list[Admin], method: str, paths: list[str], body: int | None, most: int
) -> Counter[str]:
    """Sends a request for each path, the brokers in turn; returns how often each status came."""

    def ask(pair: tuple[Admin, str]) -> str:
        admin, path = pair
        try:
            admin._ask(method, path, body)
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        return "made"

    with ThreadPoolExecutor(most) as pool:
        return Counter(pool.map(ask, zip(itertools.cycle(admins), paths)))


def has_everywhere(admin: Admin, policies: list[str], value: int) -> bool:
    return all(admin.get(path) == value for path in policies)


@pytest.mark.parametrize("most", [3, 12])
def test_changes_and_deletions_at_several_brokers_at_once_are_all_made(
    admins: list[Admin], most: int
) -> None:
    paths = [f"{SCOPE}/m{number}" for number in range(TOPICS)]
    for path in paths:
        admins[0].put(path)
    policies = [f"{path}/maxProducers" for path in paths]
    for number in range(1, ROUNDS + 1):
        answers = asked_at_once(admins, "POST", policies, number, most)
        assert answers == {"made": TOPICS}, f"round {number}"
        for admin in admins:
            wait_until(partial(has_everywhere, admin, policies, number), "this broker has every last change")
    assert asked_at_once(admins, "DELETE", paths, None, most) == {"made": TOPICS}
    for admin in admins:
        assert admin.get(SCOPE) == []
