"""Token, OAuth 2.0 and client certificates in a whole session, against a broker that asks for them and speaks TLS alone.

The broker's clock is advanced past the expiry of tokens, so nothing here waits for one.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

pulsar = pytest.importorskip("pulsar", reason="needs the official client, pip install pulsar-client")


from broker.config.security_keys import TLS_PROVIDER, TOKEN_PROVIDER  # noqa: E402
from pyspark_pulsar.client.cluster import endpoints, open_cluster  # noqa: E402
from pyspark_pulsar.errors import BrokerLost  # noqa: E402
from pyspark_pulsar.options import source_options  # noqa: E402
from tests.interop.support import Clocks, wait_until  # noqa: E402
from tests.support.certificates import Certificates  # noqa: E402
from tests.support.slow import slow_but  # noqa: E402
from tests.support.token_issuer import Issuer  # noqa: E402
from tests.support.tokens import SECRET_URL, peer_settings, token  # noqa: E402
from tests.vectors.broker_process import BrokerProcess  # noqa: E402

Options = dict[str, str]
REFRESH_S: Final = 60
"""Time that the broker gives for the answer to AUTH_CHALLENGE."""
PACKAGE: Final = "org.apache.pulsar.client.impl.auth."


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.new_authority("stranger")
    return made


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    opened = Issuer(lives_s=1000 * 3600)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{TOKEN_PROVIDER},{TLS_PROVIDER}",
        "authenticationRefreshCheckSeconds": str(REFRESH_S),
        "tokenSecretKey": SECRET_URL,
        "authorizationEnabled": "true",
        "superUserRoles": "me,client",
        "brokerServicePort": "",
        "brokerServicePortTls": "0",
        "webServicePortTls": "0",
        "tlsCertificateFilePath": str(certificates.server),
        "tlsKeyFilePath": str(certificates.key(certificates.server)),
        "tlsTrustCertsFilePath": str(certificates.authority),
        **peer_settings(token({"sub": "me"})),
        "brokerClientTlsEnabled": "true",
        "brokerClientTrustCertsFilePath": str(certificates.authority),
        "brokerDeduplicationEnabled": "true",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings, memory=True, test_faults=True) as running:
        yield running


@pytest.fixture
def shared(broker: BrokerProcess, certificates: Certificates) -> Options:
    """The options that all ways have in common."""
    return {
        "service.url": broker.addresses.pulsar_tls,
        "pulsar.client.tlsTrustCertsFilePath": str(certificates.authority),
    }


def with_plugin(shared: Options, plugin: str, params: str) -> Options:
    return {
        **shared,
        "pulsar.client.authPluginClassName": PACKAGE + plugin,
        "pulsar.client.authParams": params,
    }


def with_account(shared: Options, issuer: Issuer, secret: str) -> Options:
    account = {"issuerUrl": issuer.url, "client_id": "me", "client_secret": secret}
    return with_plugin(shared, "oauth2.AuthenticationOAuth2", json.dumps(account))


def with_certificate(shared: Options, certificates: Certificates, certificate: Path) -> Options:
    params = f"tlsCertFile:{certificate},tlsKeyFile:{certificates.key(certificate)}"
    return with_plugin(shared, "AuthenticationTls", params)


@pytest.fixture
def proven(shared: Options) -> Options:
    """By a token that never expires."""
    return with_plugin(shared, "AuthenticationToken", "token:" + token({"sub": "me"}))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"t-{time.monotonic_ns()}"


def write(spark: Any, options: Options, topic: str, first: int, count: int) -> None:
    rows = spark.range(first, first + count, 1, 2).selectExpr("cast(cast(id as string) as binary) as value")
    rows.write.format("pulsar").options(**options, topic=topic).mode("append").save()


def read(spark: Any, options: Options, topic: str) -> Counter[int]:
    rows = spark.read.format("pulsar").options(**options, topic=topic, columns="value").load().collect()
    return Counter(int(row.value) for row in rows)


def copying(spark: Any, source: Options, topic: str, sink: Options, to: str, folder: Path) -> Any:
    """A started stream from one topic to another."""
    stream = spark.readStream.format("pulsar").options(
        **source, topic=topic, columns="value", startingOffsets="earliest"
    )
    written = stream.load().writeStream.format("pulsar").options(**sink, topic=to)
    return written.option("checkpointLocation", str(folder / "checkpoint")).start()


@pytest.mark.parametrize("way", slow_but(("OAuth 2.0",), ["token", "OAuth 2.0", "certificate"]))
def test_session_writes_and_reads_batches_and_streams(
    spark: Any,
    shared: Options,
    certificates: Certificates,
    issuer: Issuer,
    topic: str,
    tmp_path: Path,
    way: str,
) -> None:
    """The sink's guarantee is exactly once, by default."""
    options = {
        "token": with_plugin(shared, "AuthenticationToken", f'{{"token": "{token({"sub": "me"})}"}}'),
        "OAuth 2.0": with_account(shared, issuer, "right"),
        "certificate": with_certificate(shared, certificates, certificates.client),
    }[way]
    write(spark, options, topic, 0, 100)
    assert read(spark, options, topic) == Counter(range(100))
    query = copying(spark, options, topic, options, f"{topic}-copy", tmp_path)
    query.processAllAvailable()
    query.stop()
    assert read(spark, options, f"{topic}-copy") == Counter(range(100))


WRONG: Final = {
    "signature": "the broker says AuthenticationError",
    "right": "the broker says AuthorizationError",
    "account": 'the issuer says 401: .*"invalid_client"',
    "authority": "self-signed certificate in certificate chain; check pulsar.client.tlsTrustCertsFilePath",
}
"""Mistakes, and what the user reads of each."""


@pytest.fixture
def wrong(
    shared: Options, proven: Options, certificates: Certificates, issuer: Issuer, mistake: str
) -> Options:
    forged, other = token({"sub": "me"}, key=bytes(32)), token({"sub": "other"})
    stranger = certificates.authority.with_name("stranger.pem")
    return {
        "signature": with_plugin(shared, "AuthenticationToken", f"token:{forged}"),
        "right": with_plugin(shared, "AuthenticationToken", f"token:{other}"),
        "account": with_account(shared, issuer, "wrong-secret"),
        "authority": {**proven, "pulsar.client.tlsTrustCertsFilePath": str(stranger)},
    }[mistake]


@pytest.mark.parametrize("mistake", slow_but(("right",), [*WRONG]))
def test_mistake_is_one_sentence_and_nothing_is_written(
    spark: Any, proven: Options, wrong: Options, topic: str, tmp_path: Path, mistake: str
) -> None:
    write(spark, proven, topic, 0, 2)

    def stream(source: Options, sink: Options, name: str) -> None:
        copying(spark, source, topic, sink, f"{topic}-{name}", tmp_path / name).processAllAvailable()

    works: dict[str, Callable[[], object]] = {
        "write": lambda: write(spark, wrong, f"{topic}-written", 0, 2),
        "read": lambda: read(spark, wrong, topic),
        "stream from": lambda: stream(wrong, proven, "from"),
        "stream to": lambda: stream(proven, wrong, "to"),
    }
    for work, call in works.items():
        with pytest.raises(Exception, match=WRONG[mistake]) as caught:
            call()
        assert "Traceback" not in str(caught.value), work
        assert "wrong-secret" not in str(caught.value), work
        assert "Python worker" not in str(caught.value), "the driver finds out, and no task begins"
    with open_cluster(source_options({**proven, "topic": topic}, streaming=False).cluster) as cluster:
        found = [name for name in cluster.topics_of("public/default") if topic in name]
    assert found == [f"persistent://public/default/{topic}"]


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("certificate", "closed the connection before it answered; does the broker accept the certificate /"),
        ("no TLS", "closed the connection before it answered; does the port want TLS"),
    ],
)
def test_connection_that_the_broker_ends_without_a_reason_names_the_likely_one(
    shared: Options, proven: Options, certificates: Certificates, mistake: str, sentence: str
) -> None:
    """Asyncio's TLS ends a refused handshake without an alert, so this broker gives none either."""
    options = {
        "certificate": with_certificate(
            shared, certificates, certificates.issue("foreign", authority="stranger")
        ),
        "no TLS": {**proven, "service.url": shared["service.url"].replace("+ssl", "")},
    }[mistake]
    settings = source_options({**options, "topic": "t"}, streaming=False).cluster
    with open_cluster(settings) as cluster, pytest.raises(BrokerLost, match=sentence):
        cluster.connection(endpoints(settings.service_url)[0])


class Expiry:
    """Tokens in a file that expire after an hour, and a broker whose clock is advanced behind it."""

    def __init__(self, broker: BrokerProcess, path: Path) -> None:
        self.path = path
        self._clock = Clocks(broker, token({"sub": "me"}))

    def renew(self, *, hours: int = 1) -> None:
        """Writes a token that holds for so long."""
        end = self._clock.now() + timedelta(hours=hours)
        self.path.write_text(token({"sub": "me", "exp": int(end.timestamp())}))

    def pass_by(self) -> None:
        """Advances the clock past the end of a token of an hour, and until its connections are asked for another."""
        self._clock.advance(hours=1, seconds=2 * REFRESH_S)


@pytest.fixture
def expiry(broker: BrokerProcess, tmp_path: Path) -> Expiry:
    made = Expiry(broker, tmp_path / "token")
    made.renew()
    return made


@pytest.mark.slow
def test_stream_outlives_the_tokens_of_a_file(
    spark: Any, shared: Options, proven: Options, topic: str, expiry: Expiry, tmp_path: Path
) -> None:
    options = with_plugin(shared, "AuthenticationToken", f"file://{expiry.path}")
    write(spark, proven, topic, 0, 50)
    query = copying(spark, options, topic, options, f"{topic}-copy", tmp_path)
    try:
        query.processAllAvailable()
        for generation in (1, 2):
            # Before the former one ends, as an operator does: a stream that reads an expired token is refused.
            expiry.renew(hours=2)
            expiry.pass_by()
            write(spark, proven, topic, generation * 50, 50)
            query.processAllAvailable()
    finally:
        query.stop()
    assert read(spark, proven, f"{topic}-copy") == Counter(range(150))


def test_stream_outlives_the_tokens_of_an_account(
    spark: Any, shared: Options, proven: Options, issuer: Issuer, topic: str, expiry: Expiry, tmp_path: Path
) -> None:
    tokens = len(issuer.forms)
    options = with_account(shared, issuer, "right")
    write(spark, proven, topic, 0, 50)
    query = copying(spark, options, topic, options, f"{topic}-copy", tmp_path)
    try:
        query.processAllAvailable()
        expiry.pass_by()
        write(spark, proven, topic, 50, 50)
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(issuer.forms) > tokens
    assert read(spark, proven, f"{topic}-copy") == Counter(range(100))


def waiting(go: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Returns a function for `mapInArrow`, which passes on three batches, and the fourth when `go` exists."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            while number == 3 and not go.exists():
                threading.Event().wait(0.01)
            yield batch

    return pass_on


def test_task_outlives_its_token(
    spark: Any, shared: Options, proven: Options, topic: str, expiry: Expiry, tmp_path: Path
) -> None:
    """Its connection is closed after the first rows, as no answer to the challenge comes from a task that waits."""
    options = with_plugin(shared, "AuthenticationToken", f"file:{expiry.path}")
    # Four batches of Arrow: Spark passes on less than one only when its buffer is full.
    rows = spark.range(0, 40_000, 1, 1).selectExpr("cast(cast(id as string) as binary) as value")
    slow = rows.mapInArrow(waiting(tmp_path / "go"), "value binary")
    writer = slow.write.format("pulsar").options(**options, topic=topic).mode("append")

    def expire() -> None:
        try:
            name = f"persistent://public/default/{topic}"
            settings = source_options({**proven, "topic": topic}, streaming=False).cluster
            with open_cluster(settings) as cluster:
                wait_until(lambda: name in cluster.topics_of("public/default"), "the topic is there")
                wait_until(
                    lambda: cluster.last_entries([name], "test")[0].entry >= 0, "the first row is stored"
                )
            expiry.pass_by()
            expiry.renew()
        finally:
            (tmp_path / "go").touch()

    # The write stays in this thread: in others Spark 4.3.0 does not find Python data sources for writing.
    with ThreadPoolExecutor(1) as threads:
        expired = threads.submit(expire)
        writer.save()
        expired.result()
    assert read(spark, proven, topic) == Counter(range(40_000))
