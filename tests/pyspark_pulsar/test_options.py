"""Options: names, values and places, each mistake one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra spark")

from protocol.pulsar_api_pb2 import MessageIdData
from pyspark_pulsar import jvm_options
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.given_options import parse_bytes
from pyspark_pulsar.nearest_name import distance
from pyspark_pulsar.options import SINK_NAMES, SOURCE_NAMES, sink_options, source_options
from pyspark_pulsar.places import parse_time_ms
from pyspark_pulsar.planning.topics import pattern_parts
from pyspark_pulsar.position import EARLIEST, MessagePosition

ROOT = Path(__file__).resolve().parents[2]
GIVEN = {"service.url": "pulsar://127.0.0.1:6650", "topic": "t"}


def test_relative_paths_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have working directories of their own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("t")
    pem = ("tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath")
    files = {f"pulsar.client.{name}": f"{name}.pem" for name in pem}
    token = {
        "pulsar.client.authPluginClassName": "AuthenticationToken",
        "pulsar.client.authParams": "file:token",
    }
    for parsed in (
        source_options({**GIVEN, **files, **token}, streaming=False),
        sink_options({**GIVEN, **files}),
    ):
        security = parsed.cluster.security
        found = (security.trust_file, security.certificate_file, security.key_file)
        assert found == tuple(str(tmp_path / f"{name}.pem") for name in pem)
    security = source_options({**GIVEN, **token}, streaming=False).cluster.security
    assert security.token_file is not None
    assert security.token_file.path == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingOffset': did you mean 'startingOffsets'?"),
        ({"pulsar.client.authParam": "x"}, "did you mean 'pulsar.client.authParams'?"),
        ({"pulsar.client.somethingElse": "x"}, "no option 'pulsar.client.somethingElse'; docs/"),
        ({"operationTimeout": "x"}, "did you mean 'pulsar.client.operationTimeoutMs'?"),
        ({"pushFilters": "true"}, "no option 'pushFilters'"),
        ({"maxRowPerTriger": "5"}, "no option 'maxRowPerTriger': did you mean 'maxRowsPerTrigger'?"),
        ({"maxrowpertriger": "5"}, "'maxRowsPerTrigger'? (Spark passes names in lower case)"),
        (
            {"deliveryguarantee": "x"},
            "deliveryGuarantee is an option of a write, and this is a read",
        ),
        ({"service.url": "http://a:1"}, "service.url is 'http://a:1': pulsar://host:port"),
        ({"service.url": "pulsar://a:b"}, "'a:b' is no host:port"),
        ({"service.url": ""}, "service.url is missing"),
        ({"topics": "a,b"}, "exactly one of topic, topics and topicsPattern"),
        ({"topic": ""}, "given: none of them"),
        ({"topic": "non-persistent://a/b/c"}, "its messages are not stored"),
        ({"topic": "", "topicsPattern": "("}, "which is no regular expression"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'maybe': true or false is expected"),
        ({"numPartitions": "0"}, "numPartitions is '0': a whole number from 1 on is expected"),
        ({"maxBytesPerTrigger": "10x"}, "maxBytesPerTrigger is '10x': a number of bytes"),
        (
            {"startingOffsets": "latest"},
            "startingOffsets is latest: a batch query would have nothing to read",
        ),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        ({"startingOffsets": "{"}, "startingOffsets is no JSON"),
        ({"startingOffsets": '{"t": "x"}'}, "'x' is no place: earliest, latest, ledger:entry"),
        ({"startingOffsets": "1:1", "startingTime": "5"}, "startingOffsets and startingTime are both given"),
        ({"startingTime": '{"t": -7}'}, "milliseconds since 1970 or an ISO time"),
        ({"endingTime": "yesterday"}, "endingTime is 'yesterday': milliseconds since 1970 or an ISO time"),
        ({"schemaType": "XML"}, "schemaType is 'XML': one of BYTES, STRING, JSON"),
        ({"schemaDefinition": "{}"}, "schemaDefinition is given without schemaType"),
        ({"pulsar.client.authPluginClassName": "tls"}, "tlsCertFile:PATH,tlsKeyFile:PATH is expected"),
        ({"pulsar.client.tlsCertificateFilePath": "/c.pem"}, "belong together: give both or none"),
        (
            {
                "service.url": "pulsar+ssl://localhost",
                "pulsar.client.tlsTrustCertsFilePath": "/there/is/none",
            },
            "/there/is/none: No such file or directory",
        ),
        (
            {
                "pulsar.client.authPluginClassName": "token",
                "pulsar.client.authParams": "file:///there/is/none",
            },
            "/there/is/none cannot be read: No such file or directory",
        ),
        (
            {"pulsar.client.authParams": "token:x"},
            "authParams is given without pulsar.client.authPluginClassName",
        ),
        (
            {"pulsar.client.authPluginClassName": "token"},
            "AuthenticationToken is empty: token:TEXT or file:///PATH",
        ),
        (
            {"pulsar.client.authPluginClassName": "token", "pulsar.client.authParams": "{}"},
            'AuthenticationToken is {"token": "…"}',
        ),
        (
            {
                "pulsar.client.authPluginClassName": "tls",
                "pulsar.client.authParams": "tlsCertFile:/c.pem,tlsKeyFile:/k.pem",
            },
            "AuthenticationTls shows its certificate over TLS alone: write pulsar+ssl:// in service.url",
        ),
        (
            {"pulsar.client.authPluginClassName": "Kerberos"},
            "built in are AuthenticationToken, AuthenticationBasic and",
        ),
    ],
)
def test_options_name_the_mistake_and_the_remedy(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        source_options(
            {key: value for key, value in {**GIVEN, **options}.items() if value or key == "service.url"},
            streaming="Trigger" in "".join(options),
        )
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("", "abc", 3), ("kitten", "sitting", 3), ("topik", "topic", 1), ("a", "a", 0)],
)
def test_distance_counts_the_letters_to_change(first: str, second: str, expected: int) -> None:
    assert distance(first, second) == distance(second, first) == expected


def test_options_refuse_ends_for_streams_and_limits_for_batches() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        source_options({**GIVEN, "endingOffsets": "latest"}, streaming=True)
    with pytest.raises(OptionError, match="limits a stream's batches"):
        source_options({**GIVEN, "maxRowsPerTrigger": "5"}, streaming=False)


def test_options_ignore_the_case_of_names() -> None:
    options = source_options(
        {"SERVICE.url": "pulsar://h", "Topic": "a/b/c", "COLUMNS": "value, __key"}, streaming=True
    )
    assert options.topics.names == ("persistent://a/b/c",)
    assert options.columns == ("value", "__key")
    assert options.start.default == "latest"


def test_token_of_a_file_is_read_again_and_the_last_one_stands_in_without_the_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    given = {
        **GIVEN,
        "pulsar.client.authPluginClassName": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "pulsar.client.authParams": f"file://{path}",
    }
    options = source_options(given, streaming=True)
    security = options.cluster.security
    path.write_text("second\n")
    assert security.proof() == ("token", b"second")
    path.write_text("")
    assert security.proof() == ("token", b"first"), "as while another program writes the file"
    path.unlink()
    assert security.proof() == ("token", b"first")
    assert options.with_token(b"third").cluster.security.proof() == ("token", b"third")
    assert options.with_token(None) == options
    assert "first" not in repr(options)


def test_places_include_both_ends() -> None:
    packed = list(MessageIdData(ledgerId=5, entryId=300, batch_index=2).SerializeToString())
    options = source_options(
        {**GIVEN, "startingOffsets": f'{{"t": {packed}}}', "endingOffsets": "7:8"}, streaming=False
    )
    assert options.start.place("persistent://public/default/t") == MessagePosition(5, 300, 1)
    assert options.start.place("persistent://public/default/t-partition-3") == MessagePosition(5, 300, 1)
    assert options.start.default == EARLIEST
    assert options.end.default == MessagePosition(7, 8)
    starts = {"3:4": MessagePosition(3, 3), "3:4:0": MessagePosition(3, 3), "3:4:1": MessagePosition(3, 4, 0)}
    for text, expected in starts.items():
        assert source_options({**GIVEN, "startingOffsets": text}, streaming=None).start.default == expected


def test_places_refuse_a_topic_that_the_query_does_not_read() -> None:
    options = source_options({**GIVEN, "startingOffsets": '{"other": "earliest"}'}, streaming=True)
    with pytest.raises(OptionError, match="startingOffsets names persistent://public/default/other"):
        options.start.check_names("startingOffsets", ["persistent://public/default/t"])


@pytest.mark.parametrize(
    ("text", "expected"), [("7", 7), ("10k", 10240), ("1 GB", 1 << 30), ("3MiB", 3 << 20)]
)
def test_parse_bytes_understands_units(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1700000000000", 1_700_000_000_000), ("1970-01-01T00:00:01", 1000), ("1970-01-01T01:00:00+01:00", 0)],
)
def test_parse_time_ms_understands_iso_and_milliseconds(text: str, expected: int) -> None:
    assert parse_time_ms(text) == expected


@pytest.mark.parametrize(
    ("pattern", "namespace", "name", "fits"),
    [
        ("sensor-.*", "public/default", "persistent://public/default/sensor-1", True),
        ("sensor-.*", "public/default", "persistent://public/default/my-sensor-1", False),
        ("persistent://a/b/(x|y)", "a/b", "persistent://a/b/y", True),
        ("a/b/x", "a/b", "persistent://a/b/xx", False),
    ],
)
def test_topics_pattern_is_split_into_namespace_and_names(
    pattern: str, namespace: str, name: str, fits: bool
) -> None:
    found, names = pattern_parts(pattern)
    assert found == namespace
    assert bool(names.fullmatch(name)) == fits


def test_topics_pattern_refuses_several_namespaces() -> None:
    with pytest.raises(OptionError, match="names in one namespace"):
        pattern_parts("persistent://a/.*/x")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("pulsar.client.numIoThreads", "pulsar.client.numIoThreads has no effect: there are no threads"),
        ("pulsar.client.keepaliveintervalseconds", "pulsar.client.keepAliveIntervalSeconds has no effect"),
        ("pulsar.reader.receiverQueueSize", "windows follow from the size of the messages"),
        ("admin.url", "admin.url has no effect: no admin requests are made"),
        ("pulsar.admin.tlsTrustCertsFilePath", "no admin requests are made"),
        ("pulsar.admin.readTimeoutMs", "no admin requests are made"),
    ],
)
def test_harmless_option_of_the_jvm_connector_is_named_in_a_warning(
    name: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    jvm_options._warn.cache_clear()
    source_options({**GIVEN, name: "5"}, streaming=False)
    source_options({**GIVEN, name: "5"}, streaming=False)
    (line,) = caplog.messages
    assert reason in line


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("pulsar.client.useTls", "write pulsar+ssl:// in service.url"),
        ("pulsar.client.tlsTrustStorePath", "use PEM files"),
        ("pulsar.reader.startMessageId", "use startingOffsets or startingTime"),
        ("pulsar.reader.readcompacted", "pulsar.reader.readCompacted is not accepted: this is not built"),
        ("pulsar.reader.subscriptionRolePrefix", "use subscriptionPrefix"),
    ],
)
def test_misleading_option_of_the_jvm_connector_is_refused_with_the_remedy(name: str, remedy: str) -> None:
    with pytest.raises(OptionError, match=re.escape(remedy)):
        source_options({**GIVEN, name: "5"}, streaming=False)


def _java_names() -> list[tuple[str, str]]:
    text = (Path(__file__).parent / "java_configuration_names.tsv").read_text()
    return [(kind, name) for kind, _, name in (line.partition("\t") for line in text.splitlines())]


@pytest.mark.parametrize("kind", ["client", "reader", "producer"])
def test_every_name_of_the_java_client_is_obeyed_or_answered(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The names are the fields of Pulsar 4.2.4's configuration classes, which the JVM connector accepts.

    Obeyed names stand in the tables of the reference page. The others get a warning with the reason for which nothing
    depends on them, or an error with the remedy.
    """
    tables = (ROOT / "docs/reference/spark_source.md").read_text()
    names = [name for found, name in _java_names() if found == kind]
    assert len(names) > 20
    parse = sink_options if kind == "producer" else lambda given: source_options(given, streaming=False)
    for name in names:
        if f"pulsar.{kind}.{name}" in (*SOURCE_NAMES, *SINK_NAMES):
            assert f".{name}`" in tables, "the reference page has it"
            continue
        jvm_options._warn.cache_clear()
        caplog.clear()
        try:
            parse({**GIVEN, f"pulsar.{kind}.{name}": "5"})
            (answer,) = caplog.messages
        except OptionError as error:
            answer = str(error)
        shown = f"pulsar.{kind}.{name}"
        assert answer.startswith((f"{shown} has no effect: ", f"{shown} is not accepted: "))


def test_ends_of_topics_are_understood_as_the_jvm_connector_writes_them() -> None:
    earliest = "[8,-1,-1,-1,-1,-1,-1,-1,-1,-1,1,16,-1,-1,-1,-1,-1,-1,-1,-1,-1,1]"
    latest = "[8,-1,-1,-1,-1,-1,-1,-1,-1,127,16,-1,-1,-1,-1,-1,-1,-1,-1,127]"
    for name, begin, end in (
        ("Offsets", f'{{"t": {earliest}}}', f'{{"t": {latest}}}'),
        ("Time", '{"t": -1}', '{"t": -2}'),
    ):
        options = source_options({**GIVEN, f"starting{name}": begin, f"ending{name}": end}, streaming=False)
        topic = "persistent://public/default/t"
        assert (options.start.place(topic), options.end.place(topic)) == (EARLIEST, "latest")
        assert options.start.time_of(topic) is options.end.time_of(topic) is None


def test_sink_refuses_options_that_would_change_its_guarantee() -> None:
    for name, remedy in (
        ("producerName", "deliveryGuarantee"),
        ("encryptionKeys", "does not encrypt"),
        ("hashingScheme", "by their key"),
    ):
        with pytest.raises(OptionError, match=remedy):
            sink_options({**GIVEN, f"pulsar.producer.{name}": "x"})
    assert sink_options({**GIVEN, "pulsar.producer.maxPendingMessages": "5"}).batch_messages_max == 1000
