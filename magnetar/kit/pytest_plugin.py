"""The pytest plugin: a broker for a test run, a namespace for each test, and a report of what tests left behind.

pytest finds it by itself where Magnetar is installed. Each process of a run (pytest-xdist has several) starts a broker
when its first test asks for one. To run the same tests against a real Pulsar, give `--pulsar-url` and
`--pulsar-admin-url`; tests that need the clock or faults are then skipped.

The parts of the kit are imported by the fixtures: pytest loads this module in every project on the machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import pytest

from magnetar.kit.errors import KitError

if TYPE_CHECKING:
    import pulsar
    from pyspark.sql import SparkSession

    from magnetar.kit.broker import Broker
    from magnetar.kit.remote import RemotePulsar
    from magnetar.kit.spark import SparkUnderTest

LEFT: Final = "magnetar_left"
"""Name of the property under which a test's report carries what it left behind."""
Pulsar: TypeAlias = "Broker | RemotePulsar"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options of the plugin."""
    group = parser.getgroup("magnetar", "Pulsar for tests")
    group.addoption("--pulsar-url", help="use this Pulsar instead of starting Magnetar: pulsar://host:port")
    group.addoption("--pulsar-admin-url", help="its admin API: http://host:port")
    group.addoption(
        "--pulsar-token", help="token of a superuser there, or file:PATH; the fixture pulsar_token has it"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Checks the options. UsageError when one of the two is missing."""
    if bool(config.getoption("--pulsar-url")) != bool(config.getoption("--pulsar-admin-url")):
        raise pytest.UsageError("--pulsar-url and --pulsar-admin-url go together: give both")
    if config.getoption("--pulsar-token") and not config.getoption("--pulsar-url"):
        raise pytest.UsageError("--pulsar-token is for the Pulsar of --pulsar-url: give this option too")


@pytest.fixture(scope="session")
def pulsar_broker(request: pytest.FixtureRequest) -> Iterator[Pulsar]:
    """The broker of this process, in memory; with `--pulsar-url` the Pulsar that it names."""
    url = request.config.getoption("--pulsar-url")
    if url:
        from magnetar.kit.remote import RemotePulsar

        admin_url = request.config.getoption("--pulsar-admin-url")
        yield RemotePulsar(url, admin_url, request.getfixturevalue("pulsar_token"))
        return
    from magnetar.kit.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def pulsar_token(request: pytest.FixtureRequest) -> str | None:
    """The token of `--pulsar-token`, for clients; None without the option."""
    given = cast("str | None", request.config.getoption("--pulsar-token"))
    if given is None or not given.startswith("file:"):
        return given
    try:
        return Path(given.removeprefix("file:")).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise pytest.UsageError(f"--pulsar-token {given}: {error.strerror}") from None


@pytest.fixture(autouse=True)
def _faults_end_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keeps the faults of a test from those that follow, and names the ones that have not happened."""
    if "pulsar_broker" not in request.fixturenames:
        yield
        return
    broker = cast("Pulsar", request.getfixturevalue("pulsar_broker"))
    yield
    node = cast("pytest.Item", request.node)
    node.user_properties += [(LEFT, f"a fault has not happened: {line}") for line in broker.end_faults()]


@pytest.fixture(scope="session")
def pulsar_url(pulsar_broker: Pulsar) -> str:
    """`pulsar://host:port` for clients."""
    return pulsar_broker.pulsar_url


@pytest.fixture(scope="session")
def pulsar_admin_url(pulsar_broker: Pulsar) -> str:
    """`http://host:port` of the admin API."""
    return pulsar_broker.admin_url


@pytest.fixture
def pulsar_namespace(request: pytest.FixtureRequest, pulsar_broker: Pulsar) -> Iterator[str]:
    """A namespace that this test alone uses, `public/test-…`; removed with its topics after the test.

    A real Pulsar that forbids this (`forceDeleteNamespaceAllowed=false`) keeps it.
    """
    from magnetar.kit.left_behind import left_in

    namespace = pulsar_broker.namespace()
    refused = pulsar_broker.refused_schemas()
    yield namespace
    # A broker that the test has restarted counts from 0 again.
    refused = max(pulsar_broker.refused_schemas() - refused, 0)
    left = left_in(pulsar_broker, namespace, refused)
    node = cast("pytest.Item", request.node)
    node.user_properties += [(LEFT, line) for line in left]
    with contextlib.suppress(KitError):
        pulsar_broker.ask("DELETE", f"/admin/v2/namespaces/{namespace}?force=true")


@pytest.fixture(scope="session")
def pulsar_token_broker() -> Iterator[Broker]:
    """A second broker in memory, which asks each client for a token: `pulsar_token_broker.token("role", …)`."""
    from magnetar.kit.broker import Broker

    with Broker(tokens=True) as broker:
        yield broker


@pytest.fixture
def pulsar_client(
    pulsar_url: str, pulsar_token: str | None, pulsar_namespace: str
) -> Iterator[pulsar.Client]:
    """A client of the broker that writes no log, closed before the look for what the test left behind."""
    try:
        import pulsar
    except ImportError as error:
        raise pytest.UsageError(
            f"pulsar_client needs the client: pip install pulsar-client ({error})"
        ) from None

    client = pulsar.Client(
        pulsar_url,
        pulsar.AuthenticationToken(pulsar_token) if pulsar_token else None,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    yield client
    client.close()


@pytest.fixture
def pulsar_topic(pulsar_broker: Pulsar, pulsar_namespace: str) -> str:
    """Returns the full name of a topic in this test's namespace."""
    return pulsar_broker.topic(namespace=pulsar_namespace)


@pytest.fixture(scope="session")
def _spark_session() -> Iterator[SparkSession]:
    try:
        from magnetar.kit.spark import start_test_session
    except ImportError as error:
        raise pytest.UsageError(f"pulsar_spark needs PySpark: pip install 'WHEEL[spark]' ({error})") from None
    session = start_test_session()
    yield session
    session.stop()


@pytest.fixture
def pulsar_spark(
    _spark_session: SparkSession, pulsar_broker: Pulsar, pulsar_namespace: str
) -> SparkUnderTest:
    """A Spark session and the broker, for tests of jobs; deduplication is on in this test's namespace."""
    from magnetar.kit.spark import SparkUnderTest

    return SparkUnderTest(_spark_session, pulsar_broker, pulsar_namespace)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes what tests left behind; reports of the processes of pytest-xdist arrive here too."""
    lines = [
        f"{report.nodeid}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, value in report.user_properties
        if name == LEFT
    ]
    if not lines:
        return
    from magnetar.kit.left_behind import OPEN

    terminalreporter.section("left behind in Pulsar")
    for line in lines:
        terminalreporter.line(line)
    if any(line.endswith(OPEN) for line in lines):
        terminalreporter.line(
            "If a fixture closes the client: let it ask for pulsar_namespace, and it ends before this look."
        )
