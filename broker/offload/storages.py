"""Opens the storage that a place names."""

from __future__ import annotations

from broker.config.offload_places import missing_of
from broker.managed_ledger.ledger_list import FILES, OffloadPlace
from foundation.model.errors import PersistenceError
from foundation.objects.object_storage import ObjectStorage, ObjectStorageError
from foundation.objects.opening import open_objects


def open_storage(place: OffloadPlace) -> ObjectStorage:
    """Returns the storage of a place. Raises PersistenceError where this broker cannot open it."""
    # A policy or a list that was written past this broker may name any place.
    if missing := missing_of(*place):
        raise PersistenceError(f"{missing.key}: {missing.remedy}")
    try:
        if place.driver == FILES:
            return open_objects(place.endpoint)
        return open_objects(f"s3://{place.bucket}", region=place.region, endpoint=place.endpoint)
    except ObjectStorageError as error:
        raise PersistenceError(str(error)) from error
