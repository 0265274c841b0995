"""The official Go and Java clients, their admin clients, and pulsar-rs: programs with a line of output per check.

They need a toolchain and their packages from the registries, and minutes to build the first time, so they run with
`make test-slow` alone. A test whose toolchain or packages are missing is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.interop.programs import BUILD_S, built_go, cargo_settings, fetch, need, run
from tests.storages.places import CLUSTER
from tests.support.certificates import Certificates
from tests.support.send_proxy import SendProxy
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "activeConsumerFailoverDelayTimeMillis": "100",
    "transactionCoordinatorEnabled": "true",
    "delayedDeliveryTickTimeMillis": "100",
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "backlogQuotaCheckIntervalInSeconds": "1",
}
HERE: Final = Path(__file__).parent
RUN_S: Final = 540
CHECKS_AT_LEAST: Final = 12
REFUSALS: Final[Mapping[str, tuple[Sequence[str], int]]] = {
    "of one message": (("aborted_transaction", "too_large", "delay_too_long", "forged_metadata"), 1),
    # The broker closes the producer after each of five damaged messages at most, and of four failed writes.
    "on its way": (("checksum", "checksum_deduplicated", "full_disk", "fenced"), 6),
    "of all": (("encryption_required", "backlog_quota", "terminated"), 2),
}
"""Checks of Refused.java, and how often each may open its producer: one that connects again opens it again."""
DAMAGED: Final = ("checksum", "checksum_deduplicated")
"""Checks of damaged.go, each unbatched and batched."""
OF_ONE_BROKER: Final = ("admin_brokers", "brokers")
"""Checks that a marker `one_broker` cannot name, because they are parts of a test."""
OVER_TLS: Final = ("thousand_unbatched", "thousand_batched_and_compressed", "cumulative_ack", "reader")
"""Checks that are repeated over TLS."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    # Of a build and a run: the limit of all tests is shorter.
    pytest.mark.timeout(BUILD_S + RUN_S),
]


@pytest.fixture(scope="module")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    return [str(built_go(HERE / "go", ".", tmp_path_factory.mktemp("go") / "interop"))]


@pytest.fixture(scope="module")
def java_class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    need("java")
    need("mvn")
    class_path = tmp_path_factory.mktemp("java") / "class-path"
    fetch(
        [
            *("mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml")),
            *("dependency:build-classpath", f"-Dmdep.outputFile={class_path}"),
        ],
        HERE / "java",
    )
    return class_path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rust_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[str]]:
    """Built from a copy, as cargo writes beside its sources. The client's build calls `protoc`: grpcio-tools has one."""
    need("cargo")
    folder = tmp_path_factory.mktemp("rust")
    shutil.copytree(HERE / "rust", folder, dirs_exist_ok=True)
    fetch(["cargo", "fetch"], folder)
    settings = cargo_settings(folder)
    built = run(["cargo", "build", "--target-dir", str(folder / "target")], BUILD_S, folder, settings)
    assert built.returncode == 0, built.stderr
    yield [str(folder / "target" / "debug" / "interop")]
    shutil.rmtree(folder / "target")


def test_go(broker: BrokerProcess, go_program: Sequence[str], subtests: pytest.Subtests) -> None:
    _judge(_outcomes(go_program, broker), subtests)


def test_rust(broker: BrokerProcess, rust_program: Sequence[str], subtests: pytest.Subtests) -> None:
    _judge(_outcomes(rust_program, broker), subtests)


@pytest.mark.parametrize("program", ["Interop", "Schemas", "Limits", "Administration"])
def test_java(broker: BrokerProcess, java_class_path: str, program: str, subtests: pytest.Subtests) -> None:
    command = ["java", "-cp", java_class_path, str(HERE / "java" / f"{program}.java")]
    _judge(_outcomes(command, broker), subtests)


@pytest.mark.one_broker("its clients reach one process, through a proxy of the test")
@pytest.mark.parametrize("group", REFUSALS)
def test_java_keeps_its_connection_when_sends_are_refused(
    tmp_path: Path, java_class_path: str, group: str, subtests: pytest.Subtests
) -> None:
    reasons, producers_max = REFUSALS[group]
    program = ["java", "-cp", java_class_path, str(HERE / "java" / "Refused.java")]
    names = [name + batched for name in reasons for batched in ("", "_batched")]
    _judge_refusals(tmp_path, program, reasons, names, producers_max, subtests)


@pytest.mark.one_broker("its clients reach one process, through a proxy of the test")
def test_go_stores_damaged_messages_once_in_order(
    tmp_path: Path, go_program: Sequence[str], subtests: pytest.Subtests
) -> None:
    names = [name + batched for name in DAMAGED for batched in ("", "_batched")]
    _judge_refusals(tmp_path, go_program, names, names, 6, subtests)


def _judge_refusals(
    folder: Path,
    program: Sequence[str],
    arguments: Sequence[str],
    names: Sequence[str],
    producers_max: int,
    subtests: pytest.Subtests,
) -> None:
    """Runs checks over a proxy that damages sends. Each opens its producer `producers_max` times at most."""
    with contextlib.closing(SendProxy()) as proxy:
        settings = {**SETTINGS, "advertisedListeners": f"proxy:{proxy.url}"}
        with BrokerProcess(folder, settings, test_faults=True) as broker:
            proxy.target = broker.addresses.pulsar
            ended = run([*program, proxy.url, broker.addresses.admin, *arguments], RUN_S, HERE)
    outcomes = _read_outcomes(ended)
    assert [*outcomes] == names
    log = broker.log_path.read_text(encoding="utf-8").splitlines()
    for name, outcome in outcomes.items():
        with subtests.test(name):
            assert outcome == "ok"
            opened = sum(
                " producer " in line and "+ " in line and f"/refused-{name}-" in line for line in log
            )
            assert 1 <= opened <= producers_max


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls_broker(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Without ports without TLS, so whoever leaves TLS finds nothing."""
    settings = {
        "brokerServicePort": "",
        "webServicePort": "",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
    }
    with BrokerProcess(tmp_path_factory.mktemp("tls-broker"), settings, memory=True) as running:
        yield running


def test_go_over_tls(
    tls_broker: BrokerProcess, go_program: Sequence[str], certificates: Certificates
) -> None:
    # The check in Java makes its topic with the JVM's own HTTP client, which trusts other certificates.
    checks = (*OVER_TLS, "http_lookup")
    assert _over_tls(go_program, tls_broker, certificates, checks) == dict.fromkeys(checks, "ok")


def test_java_over_tls(tls_broker: BrokerProcess, java_class_path: str, certificates: Certificates) -> None:
    command = ["java", "-cp", java_class_path, str(HERE / "java" / "Interop.java")]
    assert _over_tls(command, tls_broker, certificates, OVER_TLS) == dict.fromkeys(OVER_TLS, "ok")


def _over_tls(
    program: Sequence[str], broker: BrokerProcess, certificates: Certificates, checks: Sequence[str]
) -> dict[str, str]:
    urls = [broker.addresses.pulsar_tls, broker.addresses.admin_tls]
    settings = {**os.environ, "TRUST_CERTS": str(certificates.authority)}
    return _read_outcomes(run([*program, *urls, *checks], RUN_S, HERE, environment=settings))


def _judge(outcomes: Mapping[str, str], subtests: pytest.Subtests) -> None:
    assert len(outcomes) >= CHECKS_AT_LEAST
    for name, outcome in outcomes.items():
        with subtests.test(name):
            if name in OF_ONE_BROKER and CLUSTER in os.environ:
                pytest.skip("one broker: lists the brokers")
            assert outcome == "ok"


def _outcomes(program: Sequence[str], broker: BrokerProcess) -> dict[str, str]:
    return _read_outcomes(run([*program, broker.addresses.pulsar, broker.addresses.admin], RUN_S, HERE))


def _read_outcomes(ended: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """By check: `ok`, or what went wrong. AssertionError where the program did not get to its end."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    outcomes = {}
    for line in ended.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, reason = rest.partition(": ")
        outcomes[name] = "ok" if verdict == "ok" else reason
    return outcomes
