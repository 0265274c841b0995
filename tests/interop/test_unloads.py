"""Three brokers whose bundles are unloaded at random, and that fail, under the official Python, Java and Go clients.

`counting.py` has the clients and says what they count. `MAGNETAR_UNLOADS_SECONDS` and `MAGNETAR_UNLOADS_SEED` choose length
and order. Brokers reach ZooKeeper over relays, so that a test can cut one broker off.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.interop.counting import LINES_S, TOPICS, CountingClient, milliseconds, python_program
from tests.interop.programs import BUILD_S, built_go
from tests.interop.support import Admin, wait_until
from tests.interop.test_cluster_failures import Failing
from tests.support.bookies import BookieProcesses
from tests.support.java import QUICK_JAVA, ZooKeeper, class_path
from tests.support.relay import Relay
from tests.vectors.broker_process import BrokerProcess

HERE: Final = Path(__file__).parent
SECONDS: Final = float(os.environ.get("MAGNETAR_UNLOADS_SECONDS", "20"))
SEED: Final = int(os.environ.get("MAGNETAR_UNLOADS_SEED", "0"))
RATE: Final = 200
"""Messages a second of each client."""
PARTITIONS: Final = 3
UNLOAD_EVERY_S: Final = 2.0
BROKERS: Final = 3

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.timeout(2 * BUILD_S + 3 * LINES_S + 3 * SECONDS),
]


class Cut(Failing):
    """Brokers that reach ZooKeeper over a relay each."""

    def __init__(self, folder: Path, zookeeper: ZooKeeper, bookies: BookieProcesses) -> None:
        super().__init__(folder, zookeeper, bookies)
        self.relays = [Relay(zookeeper.address) for _ in range(BROKERS)]

    def start(self) -> None:
        """Starts the brokers."""
        for number, relay in enumerate(self.relays):
            self.add(f"broker{number}", {"metadataStoreUrl": f"zk:{relay.address}{self.root}"})

    def close(self) -> None:
        """Ends brokers and relays."""
        self.kill()
        for relay in self.relays:
            relay.close()

    def client_connections(self) -> int:
        """Returns how many connections of clients the brokers have taken."""
        lines = [line for broker in self.brokers for line in broker.log_lines()]
        return sum(" Pulsar-" in line and " protocol " in line for line in lines)

    def wait_until_all_are_there(self) -> None:
        """Waits until every broker lists every broker."""
        for broker in self.brokers:
            self.wait_for_list(broker, lambda found: len(found) == BROKERS)

    def wait_until_gone(self, broker: BrokerProcess) -> None:
        """Waits until another broker sees that the session of `broker` has ended."""
        name = broker.addresses.admin.removeprefix("http://")
        other = next(one for one in self.brokers if one is not broker)
        self.wait_for_list(other, lambda found: name not in found)

    @staticmethod
    def wait_for_list(broker: BrokerProcess, holds: Callable[[Sequence[str]], bool]) -> None:
        """Waits until `holds` is true of the brokers that `broker` lists."""
        admin = Admin(broker.addresses.admin)

        def asked() -> bool:
            found = admin.get("brokers")
            assert isinstance(found, list)
            return holds([str(one) for one in found])

        wait_until(asked, "the list of brokers")


def pause(brokers: Cut, place: int) -> None:
    """Stops a broker for longer than its session."""
    broker = brokers.brokers[place]
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        brokers.wait_until_gone(broker)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def cut_off(brokers: Cut, place: int) -> None:
    """Cuts a broker's connections to ZooKeeper for longer than its session."""
    brokers.relays[place].cut()
    try:
        brokers.wait_until_gone(brokers.brokers[place])
    finally:
        brokers.relays[place].mend()


def interrupt(brokers: Cut, place: int) -> None:
    """Cuts a broker's connections to ZooKeeper once; its session goes on over the next."""
    brokers.relays[place].cut()
    brokers.relays[place].mend()


def kill(brokers: Cut, place: int) -> None:
    """Kills a broker, and starts it once its session has ended."""
    broker = brokers.brokers[place]
    broker.kill()
    brokers.wait_until_gone(broker)
    broker.start()


def kill_and_start(brokers: Cut, place: int) -> None:
    """Kills a broker, and starts it at once: it finds its own bundles."""
    brokers.brokers[place].kill()
    brokers.brokers[place].start()


FAULTS: Final[dict[str, Callable[[Cut, int], None]]] = {
    one.__name__: one for one in (pause, cut_off, interrupt, kill, kill_and_start)
}


class Unloads:
    """A thread that unloads a random bundle every two seconds, until it is left."""

    def __init__(self, brokers: Cut, seed: int) -> None:
        self.answers: Counter[str] = Counter()
        """Answers by their status, or by the name of the error."""
        self.times_s: list[float] = []
        """Of each unload: its topics are closed, and another broker has the bundle or nobody took it."""
        self._brokers = brokers
        self._bundles = sorted(brokers.owners())
        self._lot = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Unloads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def summary(self) -> str:
        """Returns the counts as text."""
        answers = ", ".join(f"{count} times {answer}" for answer, count in self.answers.items())
        return f"{len(self.times_s)} unloads: {answers}; {milliseconds(self.times_s)}"

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            begun_s = time.monotonic()
            self.answers[self._unload()] += 1
            self.times_s.append(time.monotonic() - begun_s)
            due_s += UNLOAD_EVERY_S
            self._stopping.wait(max(0.0, due_s - time.monotonic()))

    def _unload(self) -> str:
        """Asks a random broker, half of the time for a destination of the test's choice."""
        asked, to = (self._lot.choice(self._brokers.brokers).addresses.admin for _ in range(2))
        bundle = self._lot.choice(self._bundles)
        query = f"?destinationBroker={to.removeprefix('http://')}" if self._lot.random() < 0.5 else ""
        try:
            Admin(asked).put(f"namespaces/public/default/{bundle}/unload{query}")
        except urllib.error.HTTPError as error:
            return f"{error.code} {json.loads(error.read() or b'{}')}"
        except OSError as error:
            return type(error).__name__
        return "204"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The command of each language's program, without its arguments."""
    folder = tmp_path_factory.mktemp("programs")
    java = [*QUICK_JAVA, "-cp", class_path(HERE / "java" / "pom.xml", folder)]
    return {
        "python": python_program(),
        "java": [*java, str(HERE / "java" / "Counting.java")],
        "go": [str(built_go(HERE / "go", "./counting", folder / "counting"))],
    }


@pytest.fixture
def brokers(tmp_path: Path, zookeeper: ZooKeeper) -> Iterator[Cut]:
    with ExitStack() as stack:
        bookies = stack.enter_context(BookieProcesses(tmp_path / "bookies", 3))
        found = Cut(tmp_path, zookeeper, bookies)
        stack.callback(found.close)
        found.start()
        yield found


@pytest.fixture
def clients(
    tmp_path: Path, brokers: Cut, programs: dict[str, list[str]]
) -> Iterator[dict[str, CountingClient]]:
    """A running program of each language, at work on topics of its own."""
    admin = Admin(brokers.brokers[0].addresses.admin)
    with ExitStack() as stack:
        found: dict[str, CountingClient] = {}
        for language, command in programs.items():
            for topic in TOPICS:
                admin.create_partitioned(f"{language}-{topic}", PARTITIONS)
            found[language] = CountingClient(
                [*command, brokers.url, f"{language}-", str(RATE)], tmp_path / f"{language}.events"
            )
            stack.callback(found[language].end)
        for client in found.values():
            client.wait_for("ready")
        yield found


def judge(clients: dict[str, CountingClient]) -> None:
    """Ends the sending, waits until all that was confirmed has come, and prints the counts."""
    for client in clients.values():
        client.stop()
    try:
        for client in clients.values():
            client.wait_for("stopped")
            client.wait_until_complete()
    finally:
        for language, client in clients.items():
            client.end()
            print(f"{language}: {client.counts.summary()}")
            for topic, waits_s in client.counts.waits_s.items():
                pauses_s = client.counts.pauses_s(topic)
                print(
                    f"  receipts of the {topic} topic: {milliseconds(waits_s)}; "
                    f"{len(pauses_s)} pauses of its partitions: {milliseconds(pauses_s)}"
                )
    for client in clients.values():
        assert client.counts.findings() == []


def test_unloads_at_random_lose_nothing_and_keep_the_order_of_keys(
    brokers: Cut, clients: dict[str, CountingClient]
) -> None:
    with Unloads(brokers, SEED) as unloads:
        threading.Event().wait(SECONDS)
    connections = brokers.client_connections()
    print(f"seed {SEED}, {connections} connections, {unloads.summary()}")
    judge(clients)
    # News of one topic must not end a connection, which has other topics' producers and consumers.
    assert connections <= len(clients) * BROKERS
    # A machine that stands still for half a minute makes a request late.
    assert {answer[:3] for answer in unloads.answers} <= {"204", "503", "504"}


def test_paused_cut_and_killed_brokers_lose_nothing_and_keep_the_order_of_keys(
    brokers: Cut, clients: dict[str, CountingClient]
) -> None:
    lot, until_s, faults = random.Random(SEED), time.monotonic() + SECONDS, Counter[str]()
    with Unloads(brokers, SEED) as unloads:
        while time.monotonic() < until_s or len(faults) < len(FAULTS):
            fault = lot.choice([one for one in FAULTS if one not in faults] or [*FAULTS])
            FAULTS[fault](brokers, lot.choice(range(BROKERS)))
            faults[fault] += 1
            brokers.wait_until_all_are_there()
            for client in clients.values():
                client.wait_for("confirmed", client.counts.said["confirmed"] + RATE)
    print(f"seed {SEED}, {dict(faults)}, {unloads.summary()}")
    judge(clients)
    # A broker whose session has ended says that it may be asked again.
    assert not [answer for answer in unloads.answers if answer.startswith("500")]
