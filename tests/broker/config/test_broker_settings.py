"""The broker's table of keys, its computed values, and values that exclude each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from broker.config import changed_settings, load_broker_settings
from broker.config.keys import BROKER_KEYS
from settings.errors import SettingsError
from settings.keys import PROFILES, Key
from settings.settings import Settings

MEMORY = {"PULSAR_MEM": "-XX:MaxDirectMemorySize=1000m"}


def load(*overrides: str, profile: str | None = None, standalone: bool = False, **environ: str) -> Settings:
    return load_broker_settings(
        None, environ={**MEMORY, **environ}, overrides=overrides, profile=profile, standalone=standalone
    )


@pytest.mark.parametrize("key", BROKER_KEYS.keys.values(), ids=lambda key: key.name)
def test_defaults_are_allowed_values(key: Key) -> None:
    for profile in PROFILES:
        for value in (key.default_for(profile), key.default_for(profile, standalone=True), key.shipped):
            if value is not None:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                assert key.parse(text) == value
    assert key.doc.endswith((".", ")"))
    assert key.default is not None or key.computed or key.kind in ("string", "list"), "say which value holds"


def test_no_key_is_both_used_and_unused() -> None:
    unused = BROKER_KEYS.unused.defaults
    assert not set(BROKER_KEYS.keys) & set(unused)
    assert set(BROKER_KEYS.removed) <= set(unused)
    for name in BROKER_KEYS.dynamic_names():
        assert name in unused or BROKER_KEYS.keys[name].dynamic


@pytest.mark.parametrize(
    ("key", "by_profile"),
    [
        # From the change lists of the releases, not from our table.
        ("cacheEvictionByExpectedReadCount", (False, True, True)),
        ("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed", (True, True, False)),
        ("managedLedgerCacheEvictionTimeThresholdMillis", (1000, 1000, 1000)),
        ("managedLedgerCacheEvictionIntervalMs", (10, 10, 10)),
        ("managedLedgerCacheEvictionWatermark", (0.9, 0.9, 0.9)),
        ("managedLedgerMaxReadsInFlightSizeInMB", (0, 0, 150)),
        ("managedLedgerCursorBackloggedThreshold", (1000, 1000, 1000)),
        ("managedLedgerMinimumBacklogCursorsForCaching", (0, 0, 0)),
        ("managedLedgerMinimumBacklogEntriesForCaching", (1000, 1000, 1000)),
        ("managedLedgerMaxBacklogBetweenCursorsForCaching", (1000, 1000, 1000)),
        ("managedLedgerReadEntryTimeoutSeconds", (0, 0, 0)),
        ("managedLedgerMaxUnackedRangesToPersist", (10_000, 10_000, 200_000)),
        ("dispatcherMaxReadBatchSize", (100, 100, 500)),
        ("keySharedLookAheadMsgInReplayThresholdPerConsumer", (2000, 2000, 4000)),
        ("keySharedLookAheadMsgInReplayThresholdPerSubscription", (20_000, 20_000, 40_000)),
        ("acknowledgmentAtBatchIndexLevelEnabled", (False, True, True)),
        ("maxMessageSize", (5_242_880,) * 3),
        ("managedLedgerCacheSizeMB", (200,) * 3),
    ],
)
def test_defaults_by_profile(key: str, by_profile: tuple[object, ...]) -> None:
    assert tuple(load(profile=profile).value(key) for profile in PROFILES) == by_profile


def test_cache_size_is_a_fifth_of_direct_memory_and_at_least_64() -> None:
    assert load().int("managedLedgerCacheSizeMB") == 200
    assert load().origin("managedLedgerCacheSizeMB") == (
        "computed: 20 % of 1000 MiB (-XX:MaxDirectMemorySize of PULSAR_MEM), at least 64"
    )
    assert load(PULSAR_MEM="-XX:MaxDirectMemorySize=100m").int("managedLedgerCacheSizeMB") == 64
    assert load("managedLedgerCacheSizeMB=0").int("managedLedgerCacheSizeMB") == 0


def test_reads_in_flight_admit_one_read_at_least() -> None:
    settings = load(profile="5.0", PULSAR_MEM="-XX:MaxDirectMemorySize=10m")
    assert settings.int("managedLedgerMaxReadsInFlightSizeInMB") == 5


def test_computed_values_follow_the_keys_they_come_from() -> None:
    settings = load("managedLedgerCacheEvictionTimeThresholdMillis=700")
    name = "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis"
    assert settings.int(name) == 1400
    later = changed_settings(settings, {"managedLedgerCacheEvictionTimeThresholdMillis": "50"})
    assert later.int(name) == 1400, "Pulsar computes it at its start as well"
    name = "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"
    later = changed_settings(settings, {"brokerDeleteInactiveTopicsFrequencySeconds": "5"})
    assert (settings.int(name), later.int(name)) == (60, 5)


def test_where_metadata_is_kept() -> None:
    assert load().str("metadataStoreUrl") == "file:data/metadata.sqlite"
    assert load("magnetarDataDirectory=/x").str("metadataStoreUrl") == "file:/x/metadata.sqlite"
    assert load("magnetarInMemory=true").str("metadataStoreUrl") == "memory:local"


def test_standalone_and_broker_differ() -> None:
    assert load(standalone=True).str("clusterName") == "standalone"
    assert load(standalone=True).str("advertisedAddress") == "localhost"
    assert load().str("clusterName") == "cluster-a"
    assert load().str("advertisedAddress")


def test_entry_metadata_is_on_in_what_we_ship_and_off_in_pulsars_default(tmp_path: Path) -> None:
    assert [name.rpartition(".")[2] for name in load().list("brokerEntryMetadataInterceptors")] == [
        "AppendBrokerTimestampMetadataInterceptor",
        "AppendIndexMetadataInterceptor",
    ]
    empty = tmp_path / "broker.conf"
    empty.write_text("")
    assert load_broker_settings(empty, environ=MEMORY).list("brokerEntryMetadataInterceptors") == ()


LOW, HIGH = "pulsarChannelWriteBufferLowWaterMark", "pulsarChannelWriteBufferHighWaterMark"
RECEIVE = "brokerAdaptiveRecvByteBufAllocator"


def test_values_that_cannot_hold_together() -> None:
    with pytest.raises(SettingsError) as caught:
        load(f"{LOW}=70000")
    assert caught.value.line == f"--set: {LOW}=70000: {LOW} (70000) may not be above {HIGH} (65536)"
    with pytest.raises(SettingsError, match=f"^environment {HIGH}: {HIGH}=1: {LOW} "):
        load(pulsarChannelWriteBufferHighWaterMark="1")
    assert load(f"{LOW}=70000", f"{HIGH}=70000").int(LOW) == 70000


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["managedLedgerCacheSizeMB=-1"], "allowed is a whole number from 0 to 2147483647"),
        (["managedLedgerCacheEvictionWatermark=1.5"], "allowed is a number from 0 to 1"),
        (["managedLedgerCacheEvictionWatermark=-0.1"], "allowed is a number from 0 to 1"),
        (["managedLedgerCacheEvictionWatermark=nan"], "allowed is a number from 0 to 1"),
        (["managedLedgerCacheEvictionTimeThresholdMillis=0"], "allowed is a whole number from 1"),
        (["managedLedgerCacheEvictionIntervalMs=0"], "allowed is a whole number from 1"),
        (["managedLedgerCursorBackloggedThreshold=0"], "allowed is a whole number from 1"),
        (["managedLedgerMaxReadsInFlightSizeInMB=-1"], "allowed is a whole number from 0"),
        ([f"{RECEIVE}MaximumSize=8"], "allowed is a whole number from 16 to 2147483647"),
        (
            [f"{RECEIVE}MaximumSize=65536", f"{RECEIVE}MinimumSize=20000"],
            f"{RECEIVE}MinimumSize (20000) may not be above {RECEIVE}InitialSize (16384)",
        ),
        (
            [f"{RECEIVE}InitialSize=2097152"],
            f"{RECEIVE}InitialSize (2097152) may not be above {RECEIVE}MaximumSize (1048576)",
        ),
        (
            ["managedLedgerMaxLedgerRolloverTimeMinutes=5"],
            "managedLedgerMinLedgerRolloverTimeMinutes (10) may not be above"
            " managedLedgerMaxLedgerRolloverTimeMinutes (5)",
        ),
        (
            ["entryCachePolicy=pip430-stash", "managedLedgerCacheEvictionTimeThresholdMillis=5001"],
            "managedLedgerCacheEvictionTimeThresholdMillis (5001) may not be above"
            " managedLedgerCacheEvictionTimeThresholdMillisMax (5000)",
        ),
        (
            [
                "allowAutoTopicCreationType=partitioned",
                "maxNumPartitionsPerPartitionedTopic=2",
                "defaultNumPartitions=3",
            ],
            "defaultNumPartitions (3) may not be above maxNumPartitionsPerPartitionedTopic (2)",
        ),
    ],
)
def test_what_a_start_refuses(overrides: list[str], line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(*overrides)
    assert caught.value.line.startswith("--set: ")
    assert line in caught.value.line
    assert "\n" not in caught.value.line


@pytest.mark.parametrize(
    "overrides",
    [
        ["managedLedgerMaxLedgerRolloverTimeMinutes=0"],
        ["managedLedgerCacheEvictionTimeThresholdMillis=5001"],
        ["maxNumPartitionsPerPartitionedTopic=2", "defaultNumPartitions=3"],
        ["allowAutoTopicCreationType=partitioned", "defaultNumPartitions=3"],
    ],
)
def test_a_relation_that_does_not_apply_stops_nobody(overrides: list[str]) -> None:
    assert load(*overrides).notes == ()


def test_the_same_rules_hold_at_run_time() -> None:
    started = load("allowAutoTopicCreationType=partitioned", "defaultNumPartitions=3")
    with pytest.raises(SettingsError) as caught:
        changed_settings(started, {"maxNumPartitionsPerPartitionedTopic": "2"})
    assert caught.value.line == (
        "dynamic: maxNumPartitionsPerPartitionedTopic=2: defaultNumPartitions (3) may not be above"
        " maxNumPartitionsPerPartitionedTopic (2)"
    )
    with pytest.raises(SettingsError, match=r"=1.5: allowed is a number from 0 to 1$"):
        changed_settings(started, {"managedLedgerCacheEvictionWatermark": "1.5"})


def test_a_budget_below_one_read_is_said_at_start_and_at_run_time() -> None:
    name = "managedLedgerMaxReadsInFlightSizeInMB"
    (note,) = load(f"{name}=4").notes
    assert note.text.startswith(
        f"--set: {name}=4: less than one read may bring (dispatcherMaxReadSizeBytes=5242880)"
    )
    started = load(f"{name}=5")
    assert started.notes == ()
    (note,) = changed_settings(started, {"dispatcherMaxReadSizeBytes": "6000000"}).notes
    assert "(dispatcherMaxReadSizeBytes=6000000)" in note.text


def test_a_key_without_effect_is_named_when_it_is_set_at_run_time() -> None:
    for name in ("maxConcurrentLookupRequest", "loadBalancerSheddingEnabled"):
        (note,) = changed_settings(load(), {name: "1"}).notes
        assert note == ("warning", f"dynamic: {name}: accepted, not used here")


def test_relations_of_keys_without_effect_stop_nobody() -> None:
    assert not BROKER_KEYS.keys["dispatcherMinReadBatchSize"].used
    assert load("dispatcherMinReadBatchSize=200").int("dispatcherMinReadBatchSize") == 200


EXPECTED_READS, POLICY = "cacheEvictionByExpectedReadCount", "entryCachePolicy"


@pytest.mark.parametrize(
    ("override", "switch", "without", "needed"),
    [
        ("managedLedgerCursorBackloggedThreshold=5", EXPECTED_READS, "true", "false"),
        ("managedLedgerMinimumBacklogCursorsForCaching=2", EXPECTED_READS, "true", "false"),
        ("managedLedgerMinimumBacklogEntriesForCaching=5", EXPECTED_READS, "true", "false"),
        ("managedLedgerMaxBacklogBetweenCursorsForCaching=5", EXPECTED_READS, "true", "false"),
        (
            "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis=5",
            EXPECTED_READS,
            "false",
            "true",
        ),
        (
            "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes=2",
            EXPECTED_READS,
            "false",
            "true",
        ),
        ("entryCacheTopicQuotaMB=7", POLICY, "pip430", "magnetar"),
        ("managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed=false", POLICY, "magnetar", "pip430"),
        ("managedLedgerCacheEvictionTimeThresholdMillisMax=7000", POLICY, "fifo-ttl", "pip430-stash"),
    ],
)
def test_a_key_that_another_one_switches_off_is_said(
    override: str, switch: str, without: str, needed: str
) -> None:
    (note,) = load(override, f"{switch}={without}").notes
    assert note.text == f"--set: {override.partition('=')[0]}: no effect while {switch}={without}"
    assert load(override, f"{switch}={needed}").notes == ()


def test_pulsars_removed_key_says_what_to_do() -> None:
    (note,) = load("managedLedgerCacheEvictionFrequency=50").notes
    assert note.text.endswith("set managedLedgerCacheEvictionIntervalMs, in milliseconds")
    assert load("managedLedgerCacheEvictionFrequency=100.0").notes == ()


def test_reading_the_tables_and_a_file_imports_no_library() -> None:
    """They are read before the port opens; `python -m bench --only start` has the time that counts."""
    program = (
        "import sys; from broker.config import load_broker_settings;"
        "load_broker_settings('conf/broker.conf', environ={});"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'}))"
    )
    root = Path(__file__).resolve().parents[3]
    run = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=root, check=True, capture_output=True, text=True
    )
    assert run.stdout.split() == ["broker", "settings"]


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("brokerEntryMetadataInterceptors=foo", "any of org.apache.pulsar"),
        ("bookieAddress=foo", "embedded or host:port"),
        ("bookieAddress=foo:bar", "embedded or host:port"),
        ("advertisedListeners=garbage", "name:pulsar://host:port"),
    ],
)
def test_a_text_without_its_form_is_refused(override: str, allowed: str) -> None:
    with pytest.raises(SettingsError, match=f"^--set: {override}: allowed is {allowed}"):
        load_broker_settings(None, environ={}, overrides=[override])


def test_texts_of_the_right_form() -> None:
    overrides = ["bookieAddress=[::1]:3181", "advertisedListeners=a:pulsar://h:1, b:pulsar+ssl://h:2"]
    settings = load_broker_settings(None, environ={}, overrides=overrides)
    assert settings.list("bookieAddress") == ("[::1]:3181",)
    assert len(settings.list("advertisedListeners")) == 2


def quorums(*overrides: str) -> tuple[int, ...]:
    settings = load_broker_settings(None, environ={}, overrides=overrides)
    names = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    return tuple(settings.int(f"managedLedgerDefault{name}") for name in names)


def test_the_ensemble_is_of_two_bookies_where_there_are_as_many() -> None:
    assert quorums() == (1, 1, 1)
    assert quorums("bookieAddress=a:1,b:1,c:1") == (2, 2, 2)
    assert quorums("bookieAddress=registered", "metadataStoreUrl=zk:h:1") == (2, 2, 2)
    assert quorums("bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultEnsembleSize=3") == (3, 2, 2)
    assert quorums("bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultWriteQuorum=1") == (2, 1, 1)


def test_the_quorums_of_a_cluster_with_one_bookie_are_noted() -> None:
    names = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    overrides = [f"managedLedgerDefault{name}=2" for name in names]
    settings = load_broker_settings(None, environ={}, overrides=overrides)
    notes = [note.text for note in settings.notes if note.level == "warning"]
    assert any(
        "bookieAddress=localhost:3181 is one bookie, so every entry is stored once" in note for note in notes
    )
    assert not any("one bookie" in note.text for note in load_broker_settings(None, environ={}).notes)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["bookieAddress=a:1,b:1", "managedLedgerDefaultEnsembleSize=3"], "bookieAddress names only 2"),
        (["bookieAddress=a:1,b:1,a:1"], "names a bookie twice"),
        (["bookieAddress=embedded,b:1"], "no others beside it"),
        (["bookieAddress=registered,b:1", "metadataStoreUrl=zk:h:1"], "or a list"),
        (["bookieAddress=registered"], "set metadataStoreUrl=zk"),
        (["bookieAddress=a:1,b:1", "managedLedgerDefaultAckQuorum=3"], "may not be above"),
        (["bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultWriteQuorum=3"], "may not be above"),
    ],
)
def test_quorums_that_cannot_be_had_are_refused(overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_broker_settings(None, environ={}, overrides=overrides)
