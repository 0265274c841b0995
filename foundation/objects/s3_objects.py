"""S3Objects: objects in a bucket of an S3 service, by the library obstore (`pip install magnetar[s3]`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final

import obstore
from obstore.store import S3Store

from foundation.objects.object_storage import NoSuchObject, ObjectStorageError, StoredObject
from foundation.objects.s3_uploads import S3Uploads

PART_BYTES: Final = 8 << 20
"""Of one part of an upload. S3 takes 10,000 parts, so an object may have 80 GiB."""
PARTS_AT_ONCE: Final = 2
REQUEST_TIMEOUT_S: Final = 30
RETRIES: Final = 2


class S3Objects:
    """The objects of a bucket. Keys of the service come from the environment, as the AWS clients find them."""

    def __init__(
        self, bucket: str, *, region: str, endpoint: str, key_id: str = "", secret: str = ""
    ) -> None:
        """`endpoint`: URL of another service than Amazon's; empty = Amazon's in `region`.

        `key_id`, `secret`: the keys; empty = the environment's.
        """
        self._bucket = bucket
        region = region or "us-east-1"
        self.uploads = S3Uploads(bucket, region=region, endpoint=endpoint, key_id=key_id, secret=secret)
        """Uploads that a process began and did not complete."""
        config: dict[str, str] = {"region": region}
        if endpoint:
            config["endpoint"] = endpoint
        if key_id:
            config |= {"access_key_id": key_id, "secret_access_key": secret}
        options = {"timeout": timedelta(seconds=REQUEST_TIMEOUT_S), "connect_timeout": timedelta(seconds=5)}
        with self._errors(""):
            self._store = S3Store(
                bucket,
                config=config,  # type: ignore[arg-type]
                client_options={**options, "allow_http": endpoint.startswith("http://")},  # type: ignore[arg-type]
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=REQUEST_TIMEOUT_S)},
            )

    @property
    def uri(self) -> str:
        """The bucket as a URI."""
        return f"s3://{self._bucket}"

    async def put(self, key: str, chunks: AsyncIterator[bytes], attributes: Mapping[str, str]) -> None:
        """Uploads an object in parts. Raises ObjectStorageError."""
        failed: list[Exception] = []

        async def noting() -> AsyncIterator[bytes]:
            # The library hides an error of the iterator in one of its own, and the caller needs the reason.
            try:
                async for chunk in chunks:
                    yield chunk
            except Exception as error:
                failed.append(error)
                raise

        try:
            with self._errors(key):
                await obstore.put_async(
                    self._store,
                    key,
                    noting(),
                    attributes=dict(attributes),
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_AT_ONCE,
                )
        except ObjectStorageError as error:
            raise (failed[0] if failed else error) from error

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns bytes of an object by one request. Raises NoSuchObject and ObjectStorageError."""
        with self._errors(key):
            return bytes(await obstore.get_range_async(self._store, key, start=start, length=length))

    async def get(self, key: str) -> bytes:
        """Returns all bytes of an object. Raises NoSuchObject and ObjectStorageError."""
        with self._errors(key):
            return bytes(await (await obstore.get_async(self._store, key)).bytes_async())

    async def delete(self, key: str) -> None:
        """Deletes an object, and parts of uploads to it; a missing one is fine. Raises ObjectStorageError."""
        await self.uploads.end(key)
        with suppress(NoSuchObject), self._errors(key):
            await obstore.delete_async(self._store, key)

    async def scan(self) -> AsyncIterator[StoredObject]:
        """Yields all objects of the bucket. Raises ObjectStorageError."""
        with self._errors(""):
            async for found in obstore.list(self._store):
                for one in found:
                    modified_ms = int(one["last_modified"].timestamp() * 1000)
                    yield StoredObject(one["path"], one["size"], modified_ms)

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Turns all that the library raises in its block into ObjectStorageError."""
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise ObjectStorageError(f"{self.uri} does not exist") from error
            raise NoSuchObject(f"{self.uri}/{key} does not exist") from error
        except BaseException as error:
            # A panic of the library is a BaseException of a class that has no module to import it from. Unnoticed, it
            # would end the task of a read whose reader waits for an answer.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            # The first line: the others are the library's own structure.
            text = next(iter(str(error).splitlines()), type(error).__name__)
            raise ObjectStorageError(f"{self.uri}/{key}: {text}") from error
