"""Says whether this broker can open a storage for copies of ledgers, and what is missing."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.config.storage_keys import OFFLOAD_DRIVERS

_BUCKET: Final = re.compile(r"[\w.-]+", re.ASCII)
_REGION: Final = re.compile(r"[\w-]*", re.ASCII)
"""A dot or a slash in a region would make another host of Amazon's URL, and a policy may set the region."""


class Missing(NamedTuple):
    """A reason why a storage cannot be opened."""

    key: str
    """The key of broker.conf, or the member of a policy, that must change."""
    remedy: str
    """The change."""


def missing_of(driver: str, bucket: str, region: str, endpoint: str) -> Missing | None:
    """Returns the reason why a storage cannot be opened; None for one that can. Parameters are those of OffloadPlace."""
    needs = f"managedLedgerOffloadDriver={driver} needs"
    if driver == "filesystem":
        return (
            None if endpoint.startswith("file:///") else Missing("fileSystemURI", f"{needs} file:///FOLDER")
        )
    if driver not in OFFLOAD_DRIVERS:
        there = ", ".join(filter(None, OFFLOAD_DRIVERS))
        return Missing("managedLedgerOffloadDriver", f"this broker has no offloader {driver}; it has {there}")
    if not _BUCKET.fullmatch(bucket):
        return Missing("s3ManagedLedgerOffloadBucket", f"{needs} the name of a bucket")
    if not _REGION.fullmatch(region):
        return Missing("s3ManagedLedgerOffloadRegion", "a region has letters, digits and hyphens alone")
    if driver == "S3" and not endpoint:
        return Missing(
            "s3ManagedLedgerOffloadServiceEndpoint", f"{needs} the URL of the service; aws-s3 is Amazon's"
        )
    if endpoint and not endpoint.startswith(("http://", "https://")):
        return Missing("s3ManagedLedgerOffloadServiceEndpoint", f"{needs} http(s)://HOST:PORT")
    from importlib.util import find_spec  # Late: only these drivers need it.

    if find_spec("obstore") is None:
        return Missing(
            "managedLedgerOffloadDriver", f"{driver} needs the library obstore: pip install magnetar[s3]"
        )
    return None
