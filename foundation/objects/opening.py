"""Opens object storage by its URI. The library for S3 is imported when a bucket is opened."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from foundation.objects.file_objects import FileObjects
from foundation.objects.object_storage import ObjectStorage, ObjectStorageError


def open_objects(uri: str, *, region: str = "", endpoint: str = "") -> ObjectStorage:
    """Returns the objects at `file:///FOLDER` or `s3://BUCKET`. Raises ObjectStorageError for another URI.

    `endpoint`: URL of another S3 service than Amazon's.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.path.strip("/"):
        return FileObjects(Path(unquote(parts.path)))
    if parts.scheme != "s3" or not parts.netloc:
        raise ObjectStorageError(f"{uri!r}: file:///FOLDER or s3://BUCKET is expected")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ObjectStorageError(f"{endpoint!r} is no URL of an S3 service: http(s)://HOST:PORT is expected")
    try:
        from foundation.objects.s3_objects import S3Objects
    except ImportError as error:
        raise ObjectStorageError("S3 needs the library obstore: pip install 'magnetar[s3]'") from error
    return S3Objects(parts.netloc, region=region, endpoint=endpoint)
