"""Rules about several of the broker's keys: computed values, and values that exclude or cancel each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from broker.config.server_keys import INDEX_INTERCEPTOR, TIMESTAMP_INTERCEPTOR
from broker.config.storage_keys import OFFLOAD_BLOCK_BYTES_MIN, OFFLOAD_READ_BYTES_MIN
from broker.config.tls_rules import check_tls, open_ports
from foundation.settings.addresses import advertised_host, check_addresses
from foundation.settings.computed import Rule, memory_share, receive_sizes, share_of_memory, value_of
from foundation.settings.keys import PORT_MAX, format_value
from foundation.settings.settings import DYNAMIC, Computed, Note, Settings
from foundation.units import MIB

EMBEDDED: Final = "embedded"
"""In `bookieAddress`: the bookie inside the broker's process."""
REGISTERED: Final = "registered"
"""In `bookieAddress`: the bookies that are registered in ZooKeeper."""
INTERCEPTORS: Final = "magnetar.broker_entry_metadata"
"""Group of entry points in which packages name their interceptors of broker entry metadata."""
CACHE_SIZE_MIN_MB: Final = 64
USUAL_QUORUM: Final = 2
"""Ensemble and quorums of Pulsar's broker.conf."""

# Computed values of keys that are unset


def _metadata_store_url(settings: Settings) -> Computed:
    if servers := settings.str("zookeeperServers"):
        return Computed(f"zk:{servers}", "zookeeperServers")
    if settings.bool("magnetarInMemory"):
        return Computed("memory:local", "magnetarInMemory")
    return Computed(f"file:{settings.str('magnetarDataDirectory')}/metadata.sqlite", "magnetarDataDirectory")


def _bookie_address(settings: Settings) -> Computed:
    # A cluster with ZooKeeper has bookies that register there. An address of our own choice would be waited for in vain.
    if _is_in_zookeeper(settings):
        return Computed((REGISTERED,), "metadataStoreUrl=zk:…")
    return Computed(("localhost:3181",), "metadataStoreUrl is no ZooKeeper")


def _is_in_zookeeper(settings: Settings) -> bool:
    return settings.str("metadataStoreUrl").startswith("zk:")


def _ensemble_size(settings: Settings) -> Computed:
    addresses = settings.list("bookieAddress")
    if REGISTERED in addresses:
        return Computed(USUAL_QUORUM, f"bookieAddress={REGISTERED}")
    because = f"{USUAL_QUORUM}, with {len(addresses)} in bookieAddress"
    return Computed(min(USUAL_QUORUM, len(addresses)), because)


def _usual_quorum_up_to(name: str) -> Rule:
    return lambda settings: Computed(min(USUAL_QUORUM, settings.int(name)), f"{USUAL_QUORUM}, at most {name}")


def _reads_in_flight(settings: Settings) -> Computed:
    # One read must fit into the budget, in whole MiB.
    return memory_share(settings, 15, at_least=-(-settings.int("dispatcherMaxReadSizeBytes") // MIB))


def _continue_caching(settings: Settings) -> Computed:
    name = "managedLedgerCacheEvictionTimeThresholdMillis"
    return Computed(2 * settings.int(name), f"2 x {name}")


def metadata_timeout_s(settings: Settings) -> int:
    """Returns the seconds that one operation of the metadata store may take; Pulsar has two names for it."""
    former = settings.int("zooKeeperOperationTimeoutSeconds")
    return former if former > 0 else settings.int("metadataStoreOperationTimeoutSeconds")


def _http_timeout(settings: Settings) -> Computed:
    return Computed(metadata_timeout_s(settings), "the time-out of the metadata store")


BROKER_RULES: Final[dict[str, Rule]] = {
    # Functions and not values: a key that is set, or never read, costs no look at memory or name server.
    "advertisedAddress": advertised_host,
    "magnetarHttpRequestTimeoutSeconds": _http_timeout,
    "metadataStoreUrl": _metadata_store_url,
    "bookieAddress": _bookie_address,
    "managedLedgerDefaultEnsembleSize": _ensemble_size,
    "managedLedgerDefaultWriteQuorum": _usual_quorum_up_to("managedLedgerDefaultEnsembleSize"),
    "managedLedgerDefaultAckQuorum": _usual_quorum_up_to("managedLedgerDefaultWriteQuorum"),
    "managedLedgerCacheSizeMB": share_of_memory(20, at_least=CACHE_SIZE_MIN_MB),
    "maxMessagePublishBufferSizeInMB": share_of_memory(50),
    "managedLedgerMaxReadsInFlightSizeInMB": _reads_in_flight,
    "managedLedgerContinueCachingAddedEntriesAfterLastActiveCursorLeavesMillis": _continue_caching,
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": value_of(
        "brokerDeleteInactiveTopicsFrequencySeconds"
    ),
}
"""By key: the function for the value that its row describes as `computed`."""

# Values that exclude or cancel each other

Condition = Callable[[Settings], bool]


def _always(_: Settings) -> bool:
    return True


def _ledgers_roll_by_time(settings: Settings) -> bool:
    return settings.int("managedLedgerMaxLedgerRolloverTimeMinutes") > 0


def _two_times_to_live(settings: Settings) -> bool:
    return settings.str("entryCachePolicy") == "pip430-stash"


def _partitions_are_limited(settings: Settings) -> bool:
    return (
        settings.int("maxNumPartitionsPerPartitionedTopic") > 0
        and settings.str("allowAutoTopicCreationType") == "partitioned"
    )


_RECEIVE = "brokerAdaptiveRecvByteBufAllocator"
_TTL = "managedLedgerCacheEvictionTimeThresholdMillis"
NOT_ABOVE: Final[tuple[tuple[str, str, Condition], ...]] = (
    (f"{_RECEIVE}MinimumSize", f"{_RECEIVE}InitialSize", _always),
    (f"{_RECEIVE}InitialSize", f"{_RECEIVE}MaximumSize", _always),
    ("pulsarChannelWriteBufferLowWaterMark", "pulsarChannelWriteBufferHighWaterMark", _always),
    ("managedLedgerDefaultAckQuorum", "managedLedgerDefaultWriteQuorum", _always),
    ("managedLedgerDefaultWriteQuorum", "managedLedgerDefaultEnsembleSize", _always),
    (
        "managedLedgerMinLedgerRolloverTimeMinutes",
        "managedLedgerMaxLedgerRolloverTimeMinutes",
        _ledgers_roll_by_time,
    ),
    (_TTL, f"{_TTL}Max", _two_times_to_live),
    ("defaultNumPartitions", "maxNumPartitionsPerPartitionedTopic", _partitions_are_limited),
)
"""Pairs of keys: the first must not exceed the second while the condition holds."""


_RECEIVE_SIZES: Final = ("byteBufAllocatorSizeMin", "byteBufAllocatorSizeInitial", "byteBufAllocatorSizeMax")


def check(settings: Settings) -> list[Note]:
    """Checks values against each other, at a start and at each change.

    Raises SettingsError for values that exclude each other. Returns notes about values without effect.
    """
    _check_memory(settings)
    _check_bookies(settings)
    _check_order(settings)
    _check_switches(settings)
    _check_closing(settings)
    # Also where no bookie is remote, so that nothing reads these keys: no wrong value is accepted in silence.
    receive_sizes(settings, *_RECEIVE_SIZES)
    _check_authorization(settings)
    check_tls(settings)
    _check_peers(settings)
    _check_listeners(settings)
    _check_interceptors(settings)
    _check_offload(settings)
    return [
        *check_addresses(
            settings, open_ports(settings), authenticated=settings.bool("authenticationEnabled")
        ),
        *_without_effect(settings),
        *_smaller_than_a_read(settings),
        *_one_copy(settings),
    ]


def own_interceptors(settings: Settings) -> list[str]:
    """Returns the names of interceptors of broker entry metadata that are not Pulsar's."""
    chosen = settings.list("brokerEntryMetadataInterceptors")
    return [name for name in chosen if name not in (TIMESTAMP_INTERCEPTOR, INDEX_INTERCEPTOR)]


def _check_peers(settings: Settings) -> None:
    """Refuses a proof towards other brokers that cannot be made. A broker with a store of its own asks no other one."""
    proof = ("brokerClientAuthenticationPlugin", "brokerClientAuthenticationParameters")
    if not settings.str("metadataStoreUrl").startswith("zk:") and DYNAMIC not in map(settings.origin, proof):
        return
    from broker.config.peer_rules import check_peers  # Late: a start without other brokers needs none of it.

    check_peers(settings)


def _check_interceptors(settings: Settings) -> None:
    if not (names := own_interceptors(settings)):
        return
    from importlib.metadata import entry_points  # Late: only such names need it, and it costs a start 5 ms.

    known = {one.name for one in entry_points(group=INTERCEPTORS)}
    if missing := [name for name in names if name not in known]:
        there = ", ".join([TIMESTAMP_INTERCEPTOR, INDEX_INTERCEPTOR, *sorted(known)])
        raise settings.error(
            "brokerEntryMetadataInterceptors",
            f"no interceptor {missing[0]}: choose among {there}, or install the package that has it",
        )


def _check_offload(settings: Settings) -> None:
    """Refuses a storage for copies of ledgers without its place."""
    from broker.config.offload_places import missing_of

    driver = settings.str("managedLedgerOffloadDriver")
    if not driver:
        return

    def of(name: str) -> str:
        return settings.str(f"managedLedgerOffload{name}") or settings.str(f"s3ManagedLedgerOffload{name}")

    endpoint = settings.str("fileSystemURI") if driver == "filesystem" else of("ServiceEndpoint")
    if missing := missing_of(driver, of("Bucket"), of("Region"), endpoint):
        raise settings.error(missing.key, missing.remedy)
    if driver == "filesystem":
        return
    for name, least in (
        ("MaxBlockSizeInBytes", OFFLOAD_BLOCK_BYTES_MIN),
        ("ReadBufferSizeInBytes", OFFLOAD_READ_BYTES_MIN),
    ):
        key = f"managedLedgerOffload{name}"
        if 0 < settings.int(key) < least:
            raise settings.error(key, f"it must be 0 or at least {least}")


def _check_listeners(settings: Settings) -> None:
    """Refuses a listener with two addresses of one kind of port: clients would be told the last one alone."""
    key = "advertisedListeners"
    named = Counter(tuple(text.split("://")[0].split(":")) for text in settings.list(key))
    for (name, scheme), count in named.items():
        if count > 1:
            raise settings.error(
                key, f"{name} has {count} addresses with {scheme}://; name it once with each, or rename one"
            )


def _check_memory(settings: Settings) -> None:
    """Refuses metadata on disk for entries in memory, and the reverse: one would outlive the other."""
    in_memory = settings.bool("magnetarInMemory")
    if settings.str("metadataStoreUrl").startswith("memory:") != in_memory:
        wanted = "memory:NAME" if in_memory else "file:PATH or zk:..."
        raise settings.error(
            "metadataStoreUrl",
            f"magnetarInMemory={format_value(in_memory)} needs {wanted}, because entries and metadata go together",
        )


def _check_bookies(settings: Settings) -> None:
    addresses = settings.list("bookieAddress")
    _check_http_ports(settings, len(addresses))
    if EMBEDDED in addresses and len(addresses) > 1:
        raise settings.error(
            "bookieAddress", "an embedded bookie has no others beside it; name several as host:port"
        )
    if REGISTERED in addresses:
        if len(addresses) > 1:
            raise settings.error("bookieAddress", "either those that are registered or a list")
        if not _is_in_zookeeper(settings):
            raise settings.error(
                "bookieAddress", "bookies register in ZooKeeper; set metadataStoreUrl=zk:host:port"
            )
        return
    if len(set(addresses)) < len(addresses):
        raise settings.error("bookieAddress", "names a bookie twice; name each once")
    name = "managedLedgerDefaultEnsembleSize"
    if settings.int(name) > len(addresses) > 1:
        raise settings.error(
            name, f"bookieAddress names only {len(addresses)}; name more bookies or set a smaller ensemble"
        )


def _check_http_ports(settings: Settings, bookies: int) -> None:
    ports = settings.list("bookieHttpPort")
    if len(ports) not in (0, 1, bookies):
        raise settings.error(
            "bookieHttpPort",
            f"{len(ports)} ports for {bookies} in bookieAddress; name one for all or one for each",
        )
    if not all(0 < int(port) <= PORT_MAX for port in ports):
        raise settings.error("bookieHttpPort", f"a port is a number from 1 to {PORT_MAX}")


ASK_FOR_A_SWITCH: Final = {
    "authenticationEnabled": (
        "authenticationProviders",
        "tokenSecretKey",
        "tokenPublicKey",
        "basicAuthConf",
        "openIDAllowedTokenIssuers",
        "authenticateOriginalAuthData",
        "authenticateMetricsEndpoint",
    ),
    "authorizationEnabled": ("superUserRoles", "proxyRoles"),
}
"""By switch: keys whose owner believes that it is on."""


def _check_switches(settings: Settings) -> None:
    """Refuses such a key unless its switch is set too; `false` is then the owner's decision, and a note tells it."""
    for switch, names in ASK_FOR_A_SWITCH.items():
        for name in names if not settings.is_set(switch) else ():
            if settings.is_set(name) and settings.value(name) and settings.origin(name) != DYNAMIC:
                raise settings.error(
                    name, f"asks for {switch}=true: set that as well, or {switch}=false to go without"
                )


def _check_authorization(settings: Settings) -> None:
    """Refuses checks of rights for roles that nobody proves: they would refuse every client, or trust a forged role."""
    if settings.bool("authorizationEnabled") and not settings.bool("authenticationEnabled"):
        raise settings.error(
            "authorizationEnabled", "rights belong to roles; set authenticationEnabled=true as well"
        )


def _check_closing(settings: Settings) -> None:
    """Refuses to close unused topics and to delete them as well, as Pulsar 5.0 does."""
    closing, mode = "brokerCloseInactiveTopicsEnabled", "delete_when_no_subscriptions"
    if not settings.bool(closing):
        return
    if settings.bool("brokerDeleteInactiveTopicsEnabled"):
        raise settings.error(
            closing, "closes what another key deletes: set brokerDeleteInactiveTopicsEnabled=false"
        )
    if settings.str("brokerDeleteInactiveTopicsMode") != mode:
        raise settings.error(closing, f"needs brokerDeleteInactiveTopicsMode={mode}")


def _check_order(settings: Settings) -> None:
    for low, high, holds in NOT_ABOVE:
        if settings.int(low) > settings.int(high) and holds(settings):
            raise settings.error(
                _to_blame(settings, low, high),
                f"{low} ({settings.int(low)}) may not be above {high} ({settings.int(high)})",
            )


def _to_blame(settings: Settings, low: str, high: str) -> str:
    """Chooses the key that the error names: one changed at run time, else one that was set."""
    changed = [name for name in (low, high) if settings.origin(name) == DYNAMIC]
    given = [name for name in (low, high) if settings.is_set(name)]
    # `high` when neither was set: then a computed value is the one that does not fit.
    return [*changed, *given, high][0]


def _without_effect(settings: Settings) -> list[Note]:
    """Notes the keys that another key's value switches off."""
    notes = []
    for key in settings.table.keys.values():
        if key.needs is None or not settings.is_set(key.name):
            continue
        switch, needed = key.needs
        value = format_value(settings.value(switch))
        if value != needed and settings.value(key.name) != key.default_for(settings.profile):
            because = f"no effect while {switch}={value}"
            notes.append(Note("warning", f"{settings.origin(key.name)}: {key.name}: {because}"))
    return notes


def _smaller_than_a_read(settings: Settings) -> list[Note]:
    """Notes a budget below one read; no error, because such a read is served when it is the only one."""
    name = "managedLedgerMaxReadsInFlightSizeInMB"
    budget_mb, read_bytes = settings.int(name), settings.int("dispatcherMaxReadSizeBytes")
    if not 0 < budget_mb * MIB < read_bytes:
        return []
    text = (
        f"less than one read may bring (dispatcherMaxReadSizeBytes={read_bytes}):"
        " such a read waits until it is the only one"
    )
    return [Note("warning", settings.error(name, text).line)]


def _one_copy(settings: Settings) -> list[Note]:
    """Notes quorums that one bookie cannot keep; no error, so that a cluster's broker.conf starts with one too."""
    name = "managedLedgerDefaultWriteQuorum"
    address, *others = settings.list("bookieAddress")
    if others or address == REGISTERED or settings.int(name) == 1 or not settings.is_set(name):
        return []
    text = f"bookieAddress={address} is one bookie, so every entry is stored once"
    return [Note("warning", settings.error(name, text).line)]
