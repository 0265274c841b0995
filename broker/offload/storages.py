"""Opens the storage that a place names."""

from __future__ import annotations

from typing import Final

from broker.managed_ledger.ledger_list import FILES, OffloadPlace
from foundation.model.errors import PersistenceError
from foundation.objects.object_storage import ObjectStorage, ObjectStorageError
from foundation.objects.opening import open_objects

S3_DRIVERS: Final = ("aws-s3", "S3")


def open_storage(place: OffloadPlace) -> ObjectStorage:
    """Returns the storage of a place. Raises PersistenceError where this broker cannot open it."""
    try:
        if place.driver == FILES:
            return open_objects(place.endpoint)
        if place.driver in S3_DRIVERS:
            return open_objects(f"s3://{place.bucket}", region=place.region, endpoint=place.endpoint)
    except ObjectStorageError as error:
        raise PersistenceError(str(error)) from error
    raise PersistenceError(f"this version of Magnetar has no offloader {place.driver}")
