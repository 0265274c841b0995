"""OffloadPolicies: the settings by which old ledgers are copied to other storage (`OffloadPoliciesImpl` in Pulsar).

Defaults are Pulsar's. `rules_of` brings the levels together, member by member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from broker.config.storage_keys import OFFLOAD_BLOCK_BYTES_MIN, OFFLOAD_READ_BYTES_MIN
from broker.managed_ledger.ledger_list import FILES
from broker.managed_ledger.settings import BOOKKEEPER_FIRST, OffloadRules
from broker.service.namespaces.namespaces import Json
from broker.service.policies.forms import (
    ANY_LONG,
    PolicyRefused,
    Structure,
    Text,
    Texts,
    Whole,
    member,
    shown,
)
from foundation.units import MIB
from foundation.value import Value

_TEXT: Final = Text(0, 1_000)
_INT: Final = Whole(-(2**31))
_BLOCK: Final = Whole(OFFLOAD_BLOCK_BYTES_MIN)
_READ: Final = Whole(OFFLOAD_READ_BYTES_MIN)
_S3: Final = ("s3", "aws-s3")
_GCS: Final = ("google-cloud-storage",)
_FILES: Final = (FILES,)
_BOOKKEEPER_FIRST: Final = (BOOKKEEPER_FIRST, "BOOKKEEPER_FIRST")
"""The word of broker.conf, and that of Pulsar's JSON."""
_PRIORITIES: Final = (*_BOOKKEEPER_FIRST, "tiered-storage-first", "TIERED_STORAGE_FIRST")
DRIVERS: Final = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")
"""Names of Pulsar's offloaders, in any case."""


class OffloadPolicies(Value):
    """The offloading of a namespace or topic; None = not given."""

    directory: str | None = member("offloadersDirectory", _TEXT, "./offloaders")
    """Folder of Pulsar's offloaders."""
    driver: str | None = member("managedLedgerOffloadDriver", _TEXT, None)
    """One of `DRIVERS`."""
    threads: int | None = member("managedLedgerOffloadMaxThreads", _INT, 2)
    """Threads that write."""
    read_threads: int | None = member("managedLedgerOffloadReadThreads", _INT, 2)
    """Threads that read."""
    prefetch_rounds: int | None = member("managedLedgerOffloadPrefetchRounds", _INT, 1)
    """Reads ahead."""
    threshold_bytes: int | None = member("managedLedgerOffloadThresholdInBytes", ANY_LONG, None)
    """Size of a topic above which its oldest ledgers are moved; below 0 = never."""
    threshold_s: int | None = member("managedLedgerOffloadThresholdInSeconds", ANY_LONG, None)
    """Age at which ledgers are moved; below 0 = never."""
    deletion_lag_ms: int | None = member("managedLedgerOffloadDeletionLagInMillis", ANY_LONG, None)
    """Milliseconds that a moved ledger stays in the bookies."""
    read_priority: str | None = member("managedLedgerOffloadedReadPriority", _TEXT, None)
    """The storage that is read first."""
    extra: Mapping[str, str] | None = member("managedLedgerExtraConfigurations", Texts(), None)
    """Further settings of an offloader."""
    s3_region: str | None = member("s3ManagedLedgerOffloadRegion", _TEXT, None)
    """Region of the bucket."""
    s3_bucket: str | None = member("s3ManagedLedgerOffloadBucket", _TEXT, None)
    """Bucket for the S3 drivers."""
    s3_endpoint: str | None = member("s3ManagedLedgerOffloadServiceEndpoint", _TEXT, None)
    """Address of the service."""
    s3_block_bytes: int | None = member("s3ManagedLedgerOffloadMaxBlockSizeInBytes", _BLOCK, 64 * MIB)
    """Bytes of a part that is written."""
    s3_read_bytes: int | None = member("s3ManagedLedgerOffloadReadBufferSizeInBytes", _READ, MIB)
    """Bytes of a read."""
    s3_role: str | None = member("s3ManagedLedgerOffloadRole", _TEXT, None)
    """Role to take on. A request with one is refused."""
    s3_session: str | None = member("s3ManagedLedgerOffloadRoleSessionName", _TEXT, "pulsar-s3-offload")
    """Name of the session in that role."""
    s3_key_id: str | None = member("s3ManagedLedgerOffloadCredentialId", _TEXT, None)
    """Id of a key. A request with one is refused."""
    s3_secret: str | None = member("s3ManagedLedgerOffloadCredentialSecret", _TEXT, None)
    """Secret of the key. A request with one is refused."""
    gcs_region: str | None = member("gcsManagedLedgerOffloadRegion", _TEXT, None)
    """Region of the bucket."""
    gcs_bucket: str | None = member("gcsManagedLedgerOffloadBucket", _TEXT, None)
    """Bucket for Google's storage."""
    gcs_block_bytes: int | None = member("gcsManagedLedgerOffloadMaxBlockSizeInBytes", _INT, 128 * MIB)
    """Bytes of a part that is written."""
    gcs_read_bytes: int | None = member("gcsManagedLedgerOffloadReadBufferSizeInBytes", _INT, MIB)
    """Bytes of a read."""
    gcs_key_file: str | None = member("gcsManagedLedgerOffloadServiceAccountKeyFile", _TEXT, None)
    """File with the key of a service account."""
    files_profile: str | None = member("fileSystemProfilePath", _TEXT, None)
    """File with the settings of Hadoop."""
    files_uri: str | None = member("fileSystemURI", _TEXT, None)
    """Address of the file system."""
    bucket: str | None = member("managedLedgerOffloadBucket", _TEXT, None)
    """Bucket for any driver."""
    region: str | None = member("managedLedgerOffloadRegion", _TEXT, None)
    """Region of that bucket."""
    endpoint: str | None = member("managedLedgerOffloadServiceEndpoint", _TEXT, None)
    """Address of the service for any driver."""
    block_bytes: int | None = member("managedLedgerOffloadMaxBlockSizeInBytes", _BLOCK, None)
    """Bytes of a part that is written, for any driver."""
    read_bytes: int | None = member("managedLedgerOffloadReadBufferSizeInBytes", _READ, None)
    """Bytes of a read, for any driver."""

    def _is(self, names: tuple[str, ...]) -> bool:
        return (self.driver or "").lower() in names

    @property
    def kinds(self) -> dict[str, Json]:
        """Members that Pulsar's JSON derives from the driver."""
        return {
            "s3Driver": self._is(_S3),
            "gcsDriver": self._is(_GCS),
            "fileSystemDriver": self._is(_FILES),
        }

    @property
    def has_bucket(self) -> bool:
        """True where the driver has the bucket that it needs."""
        return bool(
            self.bucket
            or (self._is(_S3) and self.s3_bucket)
            or (self._is(_GCS) and self.gcs_bucket)
            or self._is(_FILES)
        )


def rules_of(broker: OffloadRules, levels: Sequence[OffloadPolicies]) -> OffloadRules:
    """Returns the rules in force: of each member the first value that a level sets, else the broker's.

    Folder and endpoint are the broker's in any case, each for its drivers: the access keys of the broker must not go
    where an administrator of a tenant says.
    """

    def first(*names: str) -> int | str | None:
        found = (getattr(level, name) for level in levels for name in names)
        return next((value for value in found if value is not None), None)

    driver, place = first("driver"), broker.place
    if isinstance(driver, str):
        driver = next((name for name in DRIVERS if name.lower() == driver.lower()), driver)
        place = broker.files if driver == FILES else broker.s3._replace(driver=driver)
    if place.driver != FILES:
        changed = {
            "bucket": first("bucket", "s3_bucket"),
            "region": first("region", "s3_region"),
        }
        place = place._replace(**{name: value for name, value in changed.items() if isinstance(value, str)})
    priority = first("read_priority")
    bookkeeper_first = broker.bookkeeper_first if priority is None else priority in _BOOKKEEPER_FIRST
    numbers = {
        "threshold_bytes": first("threshold_bytes"),
        "threshold_s": first("threshold_s"),
        "deletion_lag_ms": first("deletion_lag_ms"),
        "block_bytes": first("block_bytes", "s3_block_bytes"),
        "read_bytes": first("read_bytes", "s3_read_bytes"),
    }
    given = {name: value for name, value in numbers.items() if isinstance(value, int)}
    return OffloadRules(**{**broker._asdict(), **given, "place": place, "bookkeeper_first": bookkeeper_first})


def refuse_closed(broker: OffloadRules, value: OffloadPolicies) -> None:
    """Raises PolicyRefused for a policy whose storage this broker cannot open. `broker`: the rules of its keys."""
    from broker.config.offload_places import missing_of  # Late: only such requests need it.

    place = rules_of(broker, [value]).place
    if missing := missing_of(*place):
        raise PolicyRefused(
            f"managedLedgerOffloadDriver={value.driver}: this broker cannot open the storage;"
            f" {missing.key}: {missing.remedy}"
        )


def _check(value: OffloadPolicies) -> None:
    if (value.driver or "").lower() not in [name.lower() for name in DRIVERS]:
        raise PolicyRefused(f"The driver is not supported, support value: {','.join(DRIVERS)}")
    if not value.has_bucket:
        raise PolicyRefused("The bucket must be specified for namespace offload.")
    if value.read_priority is not None and value.read_priority not in _PRIORITIES:
        # Pulsar takes another word as unset.
        raise PolicyRefused(
            f"managedLedgerOffloadedReadPriority={shown(value.read_priority)}: allowed is one of {', '.join(_PRIORITIES)}"
        )
    for name, given in (
        ("s3ManagedLedgerOffloadRole", value.s3_role),
        ("s3ManagedLedgerOffloadCredentialId", value.s3_key_id),
    ):
        if given:
            raise PolicyRefused(
                f"{name}: this broker takes on no role, and its keys for S3 come from its environment: leave the member out"
            )
    if value.s3_secret:
        # Pulsar stores it, and shows it to every administrator of the tenant.
        raise PolicyRefused(
            "s3ManagedLedgerOffloadCredentialSecret: policies are shown to administrators, so this broker keeps no secret"
            " in them; its keys for S3 come from its environment: leave the member out"
        )


class Offloading(Structure[OffloadPolicies]):
    """The form of `OffloadPolicies`."""

    def __init__(self) -> None:
        words = "a JSON object with `managedLedgerOffloadDriver` and the settings of the driver"
        super().__init__(OffloadPolicies, _check, words)

    def write(self, value: OffloadPolicies) -> Json:
        """Returns Pulsar's JSON, defaults and derived members included."""
        shown = super().write(replace(value, extra=value.extra or {}))
        assert isinstance(shown, dict), "Structure writes an object"
        return shown | value.kinds
