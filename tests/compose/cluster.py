"""A cluster for boards: ZooKeeper, bookies, re-replication and a broker, all scraped and at work.

What a board asks for happens here where it can: `clients.py` sees to the broker, and a bookie is killed so that its
ledgers are copied.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from tests.compose import clients
from tests.compose.__main__ import wait_for
from tests.compose.asking import SCRAPED_S, Prometheus, stop
from tests.support.bookies import ROOT, BookieProcess
from tests.support.java import ZooKeeper
from tests.support.ports import free_port
from tests.vectors.broker_process import BrokerProcess

CLUSTER: Final = "standalone"
"""Value of the label `cluster`."""


class Target(NamedTuple):
    """One process that Prometheus scrapes."""

    job: str
    """Pulsar's boards want `broker`, `bookie` and `zookeeper`."""
    pod: str
    """Name of the process, as Kubernetes would call its pod."""
    address: str
    """host:port"""


def scrape_config(targets: list[Target]) -> str:
    """Returns Prometheus' file; each target has the labels that the stock boards' authors give theirs."""
    jobs = [
        f"  - job_name: {job}\n    honor_labels: true\n    static_configs:\n"
        + "".join(
            f'      - targets: ["{one.address}"]\n'
            f"        labels: {{kubernetes_pod_name: {one.pod}, pod: {one.pod}, cluster: {CLUSTER}, "
            f"cloud_streamnative_io_cluster: {CLUSTER}, cloud_streamnative_io_component: {job}}}\n"
            for one in of_job
        )
        for job, of_job in itertools.groupby(targets, lambda one: one.job)
    ]
    return f"global:\n  scrape_interval: {SCRAPED_S}s\nscrape_configs:\n" + "".join(jobs)


class Cluster(NamedTuple):
    """A running cluster."""

    prometheus: Prometheus
    """Scrapes all of it."""
    targets: int
    """Number of processes that are scraped."""
    broker: BrokerProcess
    """The broker."""
    lost: BookieProcess
    """The bookie to kill."""


@contextlib.contextmanager
def running(classes: str, folder: Path) -> Iterator[Cluster]:
    """Runs the cluster until the block ends. `classes` is a class path with ZooKeeper and its metrics."""
    with ExitStack() as stack:
        zookeeper = ZooKeeper(classes, made(folder / "zookeeper"), metrics=True)
        zookeeper.start()
        stack.callback(zookeeper.stop)
        shared = {
            "metadataServiceUri": f"zk+hierarchical://{zookeeper.address}/ledgers",
            "advertisedAddress": "127.0.0.1",
            "zkTimeout": "10000",
            # Else entries stay in the write cache for a minute, and no read needs the disk.
            "flushInterval": "1000",
        }
        bookies = [BookieProcess(folder / f"bookie-{number}", shared) for number in range(3)]
        for bookie in bookies:
            bookie.spawn()
            stack.callback(bookie.kill)
        for bookie in bookies:
            bookie.wait_ready()
        # None is read-only: a bookie without adds has no latencies, which turns the means of all bookies into NaN.
        *kept, lost = bookies
        broker = BrokerProcess(made(folder / "broker"), broker_settings(zookeeper.address))
        stack.callback(broker.kill)
        broker.start()
        targets = [
            Target("broker", "broker-0", broker.addresses.admin.removeprefix("http://")),
            *(
                Target("bookie", f"bookie-{number}", bookie.http.removeprefix("http://"))
                for number, bookie in enumerate(kept)
            ),
            Target("recovery", "recovery-0", recovery(stack, folder / "recovery", shared)),
            Target("zookeeper", "zookeeper-0", zookeeper.metrics_address),
            Target("prometheus", "prometheus-0", "PROMETHEUS"),
            *machine(stack),
        ]
        prometheus = Prometheus(folder, scrape_config(targets))
        stack.enter_context(prometheus.running())
        yield Cluster(prometheus, len(targets), broker, lost)


def made(folder: Path) -> Path:
    """Returns the folder after making it."""
    folder.mkdir()
    return folder


def broker_settings(zookeeper: str) -> Mapping[str, str]:
    """Returns the settings of a broker on two copies of each entry, whose windows are as short as they can be."""
    return {
        "metadataStoreUrl": f"zk:{zookeeper}",
        "bookieAddress": "registered",
        "managedLedgerDefaultEnsembleSize": "2",
        "managedLedgerDefaultWriteQuorum": "2",
        "managedLedgerDefaultAckQuorum": "2",
        "statsUpdateFrequencyInSecs": "1",
        "managedLedgerStatsPeriodSeconds": "1",
        "transactionCoordinatorEnabled": "true",
        "messageExpiryCheckIntervalInMinutes": "1",
        # The loopback carries all that the test sends. Linux knows no speed of it.
        "loadBalancerOverrideBrokerNics": "lo",
        "loadBalancerOverrideBrokerNicSpeedGbps": "10",
    }


def recovery(stack: ExitStack, folder: Path, shared: Mapping[str, str]) -> str:
    """Starts auditor and worker in a process of their own; returns the address of its metrics."""
    ready = made(folder) / "ready.json"
    settings = {
        **shared,
        "prometheusStatsHttpPort": "0",
        "openLedgerRereplicationGracePeriod": "500",
        "rwRereplicateBackoffMs": "200",
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "magnetar", "bookie", "autorecovery", "--ready-file", str(ready), *flags]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    stack.callback(stop, process)
    wait_for(ready.exists, 60, "re-replication")
    address: str = json.loads(ready.read_text())["http"]
    return address.removeprefix("http://")


def node_exporter() -> str | None:
    """Returns the path of the exporter of the machine's numbers; None where it is not installed."""
    return shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")


def machine(stack: ExitStack) -> list[Target]:
    """Starts that exporter where it is installed."""
    binary = node_exporter()
    if binary is None:
        return []
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen([binary, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL)
    stack.callback(stop, process)
    return [Target("node-exporter", "node-0", address)]


@contextlib.contextmanager
def at_work(cluster: Cluster) -> Iterator[None]:
    """Runs the clients until the block ends, and kills the bookie that has some of their first entries."""
    addresses = cluster.broker.addresses
    with clients.at_work(addresses.admin, addresses.pulsar):
        cluster.lost.kill()
        yield
