"""The broker's table of keys, its computed values, and values that exclude each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from bookie_stub.config.rules import BOOKIE_RULES
from broker.compose.cache_settings import EntryCacheSettings
from broker.compose.ledger_settings import LedgerSettings
from broker.config import changed_settings, load_broker_settings
from broker.config.keys import BROKER_KEYS
from broker.config.rules import BROKER_RULES
from foundation.settings.computed import Rule
from foundation.settings.errors import SettingsError
from foundation.settings.keys import PROFILES, Key, KeyTable
from foundation.settings.settings import Note, Settings
from magnetar.process.client_keys import CLIENT_KEYS

MEMORY = {"PULSAR_MEM": "-XX:MaxDirectMemorySize=1000m"}


def load(*overrides: str, profile: str | None = None, standalone: bool = False, **environ: str) -> Settings:
    return load_broker_settings(
        None, environ={**MEMORY, **environ}, overrides=overrides, profile=profile, standalone=standalone
    )


EVERY_KEY = [*BROKER_KEYS.keys.values(), *BOOKIE_KEYS.keys.values(), *CLIENT_KEYS.keys.values()]


@pytest.mark.parametrize("key", EVERY_KEY, ids=lambda key: key.name)
def test_row_has_allowed_defaults_a_unit_and_a_sentence(key: Key) -> None:
    for profile in PROFILES:
        for value in (key.default_for(profile), key.default_for(profile, standalone=True), key.shipped):
            if value is not None:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                assert key.parse(text) == value
    assert key.doc.endswith((".", ")"))
    says_none = key.optional or key.kind in ("string", "list")
    assert key.default is not None or key.computed or says_none, "say which value holds"
    assert bool(key.unit) == (key.kind in ("int", "long", "double"))


@pytest.mark.parametrize(("table", "rules"), [(BROKER_KEYS, BROKER_RULES), (BOOKIE_KEYS, BOOKIE_RULES)])
def test_each_computed_value_has_its_rule(table: KeyTable, rules: Mapping[str, Rule]) -> None:
    computed = {key.name for key in table.keys.values() if key.computed}
    # No code reads internalListenerName yet, so nothing computes it.
    assert computed - {"internalListenerName"} == set(rules)


def test_switches_of_keys_are_keys_with_that_value() -> None:
    for key in EVERY_KEY:
        if key.needs is not None:
            switch, value = key.needs
            BROKER_KEYS.keys[switch].parse(value)


def test_unused_keys_have_a_reason_and_no_row_twice() -> None:
    for table in (BROKER_KEYS, BOOKIE_KEYS, CLIENT_KEYS):
        names = [row.name for row in table.unused.rows]
        assert names == sorted(set(names), key=lambda name: (name.lower(), name))
        assert all(row.reason for row in table.unused.rows)


@pytest.mark.parametrize(
    ("denied", "keys"),
    [
        ("no TLS", {"tlsCertificateFilePath", "bookkeeperTLSCertificateFilePath"}),
        ("no topic list watchers", {"enableBrokerSideSubscriptionPatternEvaluation"}),
        ("no auto-recovery service", {"lostBookieRecoveryDelay"}),
    ],
)
def test_no_reason_denies_what_used_keys_are_about(denied: str, keys: set[str]) -> None:
    """Such reasons stayed in the lists after the features had come."""
    reasons = {row.reason for table in (BROKER_KEYS, BOOKIE_KEYS) for row in table.unused.rows}
    assert denied not in reasons
    assert keys <= set(BROKER_KEYS.keys) | set(BOOKIE_KEYS.keys)


def test_unused_keys_have_no_row() -> None:
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
def test_defaults_are_those_of_the_release(key: str, by_profile: tuple[object, ...]) -> None:
    assert tuple(load(profile=profile).value(key) for profile in PROFILES) == by_profile


def test_cache_size_is_a_fifth_of_direct_memory_and_at_least_64_mib() -> None:
    assert load().int("managedLedgerCacheSizeMB") == 200
    assert load().origin("managedLedgerCacheSizeMB") == (
        "computed: 20 % of 1000 MiB (-XX:MaxDirectMemorySize of PULSAR_MEM), at least 64"
    )
    assert load(PULSAR_MEM="-XX:MaxDirectMemorySize=100m").int("managedLedgerCacheSizeMB") == 64
    assert load("managedLedgerCacheSizeMB=0").int("managedLedgerCacheSizeMB") == 0


def test_budget_of_reads_in_flight_admits_one_read() -> None:
    settings = load(profile="5.0", PULSAR_MEM="-XX:MaxDirectMemorySize=10m")
    assert settings.int("managedLedgerMaxReadsInFlightSizeInMB") == 5


def test_computed_value_follows_the_keys_it_comes_from() -> None:
    settings = load("managedLedgerCacheEvictionTimeThresholdMillis=700")
    name = "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis"
    assert settings.int(name) == 1400
    later = changed_settings(settings, {"managedLedgerCacheEvictionTimeThresholdMillis": "50"})
    assert later.int(name) == 100, "Pulsar computes it at its start alone"
    name = "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds"
    later = changed_settings(settings, {"brokerDeleteInactiveTopicsFrequencySeconds": "5"})
    assert (settings.int(name), later.int(name)) == (60, 5)


def test_metadata_store_follows_data_directory_and_in_memory() -> None:
    assert load().str("metadataStoreUrl") == "file:data/metadata.sqlite"
    assert load("magnetarDataDirectory=/x").str("metadataStoreUrl") == "file:/x/metadata.sqlite"
    assert load("magnetarInMemory=true").str("metadataStoreUrl") == "memory:local"


def test_zookeeper_servers_act_where_the_metadata_store_is_not_named() -> None:
    """As in Pulsar, whose older conf files name them alone."""
    older = load("zookeeperServers=h:2181,g:2181/c")
    assert older.str("metadataStoreUrl") == "zk:h:2181,g:2181/c"
    assert older.origin("metadataStoreUrl") == "computed: zookeeperServers"
    assert older.list("bookieAddress") == ("registered",)
    assert load("zookeeperServers=h:2181", "metadataStoreUrl=").str("metadataStoreUrl") == "zk:h:2181"
    assert load("zookeeperServers=h:2181", "metadataStoreUrl=zk:g:1").str("metadataStoreUrl") == "zk:g:1"
    with pytest.raises(SettingsError, match="zookeeperServers"):
        load("zookeeperServers=h")


def test_configuration_store_is_named_as_without_effect() -> None:
    for name in ("configurationMetadataStoreUrl", "configurationStoreServers", "globalZookeeperServers"):
        [note] = load(f"{name}=zk:h:2181").notes
        assert note.text == f"set, but not used here: {name}"


def test_bookies_follow_the_metadata_store() -> None:
    """A broker on a cluster's ZooKeeper waited for a bookie at localhost:3181, beside registered ones."""
    in_zookeeper = load("metadataStoreUrl=zk:h:2181/c")
    assert in_zookeeper.list("bookieAddress") == ("registered",)
    assert in_zookeeper.origin("bookieAddress") == "computed: metadataStoreUrl=zk:…"
    assert in_zookeeper.int("managedLedgerDefaultWriteQuorum") == 2
    assert load().list("bookieAddress") == ("localhost:3181",)
    assert load("metadataStoreUrl=zk:h:2181", "bookieAddress=b:1").list("bookieAddress") == ("b:1",)
    assert load("metadataStoreUrl=zk:h:2181", standalone=True).list("bookieAddress") == ("embedded",)


def test_standalone_has_other_names_than_a_broker() -> None:
    assert load(standalone=True).str("clusterName") == "standalone"
    assert load(standalone=True).str("advertisedAddress") == "localhost"
    assert load().str("clusterName") == "cluster-a"
    assert load().str("advertisedAddress")


def test_entry_metadata_is_on_without_a_file_and_off_with_an_empty_one(tmp_path: Path) -> None:
    assert [name.rpartition(".")[2] for name in load().list("brokerEntryMetadataInterceptors")] == [
        "AppendBrokerTimestampMetadataInterceptor",
        "AppendIndexMetadataInterceptor",
    ]
    empty = tmp_path / "broker.conf"
    empty.write_text("")
    assert load_broker_settings(empty, environ=MEMORY).list("brokerEntryMetadataInterceptors") == ()


LOW, HIGH = "pulsarChannelWriteBufferLowWaterMark", "pulsarChannelWriteBufferHighWaterMark"
RECEIVE = "brokerAdaptiveRecvByteBufAllocator"


def test_pair_is_refused_when_the_low_mark_is_above_the_high_one() -> None:
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
def test_start_refuses_values_that_exclude_each_other_in_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(*overrides)
    assert caught.value.line.startswith("--set: ")
    assert line in caught.value.line
    assert "\n" not in caught.value.line


@pytest.mark.parametrize("standalone", [False, True])
def test_sizes_of_reads_that_fall_are_refused_with_and_without_a_bookie_inside(standalone: bool) -> None:
    with pytest.raises(
        SettingsError,
        match=r"^--set: byteBufAllocatorSizeMin=4096: .* raise the last or lower the first$",
    ):
        load("byteBufAllocatorSizeMin=4096", "byteBufAllocatorSizeMax=128", standalone=standalone)


@pytest.mark.parametrize(
    "overrides",
    [
        ["managedLedgerMaxLedgerRolloverTimeMinutes=0"],
        ["managedLedgerCacheEvictionTimeThresholdMillis=5001"],
        ["maxNumPartitionsPerPartitionedTopic=2", "defaultNumPartitions=3"],
        ["allowAutoTopicCreationType=partitioned", "defaultNumPartitions=3"],
    ],
)
def test_pair_is_allowed_when_its_condition_does_not_hold(overrides: list[str]) -> None:
    assert load(*overrides).notes == ()


def test_change_at_run_time_obeys_the_rules_of_a_start() -> None:
    started = load("allowAutoTopicCreationType=partitioned", "defaultNumPartitions=3")
    with pytest.raises(SettingsError) as caught:
        changed_settings(started, {"maxNumPartitionsPerPartitionedTopic": "2"})
    assert caught.value.line == (
        "dynamic: maxNumPartitionsPerPartitionedTopic=2: defaultNumPartitions (3) may not be above"
        " maxNumPartitionsPerPartitionedTopic (2)"
    )
    with pytest.raises(SettingsError, match=r"=1.5: allowed is a number from 0 to 1$"):
        changed_settings(started, {"managedLedgerCacheEvictionWatermark": "1.5"})


def test_budget_below_one_read_is_noted_at_start_and_at_run_time() -> None:
    name = "managedLedgerMaxReadsInFlightSizeInMB"
    (note,) = load(f"{name}=4").notes
    assert note.text.startswith(
        f"--set: {name}=4: less than one read may bring (dispatcherMaxReadSizeBytes=5242880)"
    )
    started = load(f"{name}=5")
    assert started.notes == ()
    (note,) = changed_settings(started, {"dispatcherMaxReadSizeBytes": "6000000"}).notes
    assert "(dispatcherMaxReadSizeBytes=6000000)" in note.text


def test_key_without_effect_is_noted_when_it_is_set_at_run_time() -> None:
    for name in ("loadBalancerMaxNumberOfBrokerSheddingPerCycle", "loadBalancerTransferEnabled"):
        (note,) = changed_settings(load(), {name: "1"}).notes
        assert note == Note("warning", f"dynamic: {name}: accepted, not used here")


def test_unused_key_is_not_compared_with_others() -> None:
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
def test_key_is_noted_when_another_key_switches_it_off(
    override: str, switch: str, without: str, needed: str
) -> None:
    (note,) = load(override, f"{switch}={without}").notes
    assert note.text == f"--set: {override.partition('=')[0]}: no effect while {switch}={without}"
    assert load(override, f"{switch}={needed}").notes == ()


def test_removed_key_is_noted_with_its_replacement() -> None:
    (note,) = load("managedLedgerCacheEvictionFrequency=50").notes
    assert note.text.endswith("set managedLedgerCacheEvictionIntervalMs, in milliseconds")
    assert load("managedLedgerCacheEvictionFrequency=100.0").notes == ()


def test_loading_imports_no_library() -> None:
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
    assert run.stdout.split() == ["broker", "entry_cache", "foundation"]


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("bookieAddress=foo", "embedded or host:port"),
        ("bookieAddress=foo:bar", "embedded or host:port"),
        ("advertisedListeners=garbage", "name:pulsar://host:port"),
    ],
)
def test_text_is_refused_when_it_has_not_its_form(override: str, allowed: str) -> None:
    with pytest.raises(SettingsError, match=f"^--set: {override}: allowed is {allowed}"):
        load_broker_settings(None, environ={}, overrides=[override])


def test_texts_of_the_right_form_are_accepted() -> None:
    overrides = ["bookieAddress=[::1]:3181", "advertisedListeners=a:pulsar://h:1, b:pulsar+ssl://h:2"]
    settings = load_broker_settings(None, environ={}, overrides=overrides)
    assert settings.list("bookieAddress") == ("[::1]:3181",)
    assert len(settings.list("advertisedListeners")) == 2


def test_listener_has_one_address_for_each_kind_of_port() -> None:
    both = "advertisedListeners=a:pulsar://h:1,a:pulsar+ssl://h:2,b:pulsar://h:3"
    assert len(load_broker_settings(None, environ={}, overrides=[both]).list("advertisedListeners")) == 3
    twice = "advertisedListeners=a:pulsar://x:1, a:pulsar://y:2"
    with pytest.raises(
        SettingsError, match=r"^--set: advertisedListeners=.*: a has 2 addresses with pulsar://"
    ):
        load_broker_settings(None, environ={}, overrides=[twice])


def quorums(*overrides: str) -> tuple[int, ...]:
    settings = load_broker_settings(None, environ={}, overrides=overrides)
    names = ("EnsembleSize", "WriteQuorum", "AckQuorum")
    return tuple(settings.int(f"managedLedgerDefault{name}") for name in names)


def test_quorums_are_two_when_there_are_as_many_bookies() -> None:
    assert quorums() == (1, 1, 1)
    assert quorums("bookieAddress=a:1,b:1,c:1") == (2, 2, 2)
    assert quorums("bookieAddress=registered", "metadataStoreUrl=zk:h:1") == (2, 2, 2)
    assert quorums("bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultEnsembleSize=3") == (3, 2, 2)
    assert quorums("bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultWriteQuorum=1") == (2, 1, 1)


def test_quorums_are_noted_when_there_is_one_bookie() -> None:
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
        (["bookieAddress=a:1,b:1", "bookieHttpPort=1,2,3"], "3 ports for 2 in bookieAddress"),
        (["bookieAddress=a:1", "bookieHttpPort=65536"], "a port is a number from 1 to 65535"),
        (["bookieAddress=a:1,b:1,a:1"], "names a bookie twice"),
        (["bookieAddress=embedded,b:1"], "no others beside it"),
        (["bookieAddress=registered,b:1", "metadataStoreUrl=zk:h:1"], "or a list"),
        (["bookieAddress=registered"], "set metadataStoreUrl=zk"),
        (["bookieAddress=a:1,b:1", "managedLedgerDefaultAckQuorum=3"], "may not be above"),
        (["bookieAddress=a:1,b:1,c:1", "managedLedgerDefaultWriteQuorum=3"], "may not be above"),
    ],
)
def test_quorums_and_bookies_are_refused_when_they_do_not_fit(overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_broker_settings(None, environ={}, overrides=overrides)


def test_settings_of_libraries_compare_by_value_and_check_their_values() -> None:
    """Their fields come from the library, and the values from keys."""
    assert EntryCacheSettings(5) == EntryCacheSettings(5)
    assert EntryCacheSettings(5) != EntryCacheSettings(6)
    assert LedgerSettings(sticky_reads=True) != LedgerSettings(sticky_reads=False)
    with pytest.raises(FrozenInstanceError):
        EntryCacheSettings(5).ttl_ns = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="cache size is negative: -1"):
        EntryCacheSettings(-1)
    with pytest.raises(ValueError, match="does not hold"):
        LedgerSettings(ack_quorum=2)
