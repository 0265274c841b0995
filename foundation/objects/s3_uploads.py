"""S3Uploads: ends uploads in parts that nobody completed.

A process that is killed during an upload leaves its parts in the service, where no list of objects shows them. obstore
lists no uploads, so the two requests are signed here (AWS Signature Version 4), with keys from the environment or given.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from foundation.objects.object_storage import ObjectStorageError

log = logging.getLogger("magnetar")
TIMEOUT_S: Final = 30
_NOT_ALLOWED: Final = (403, 501)
"""Of keys without the right to list uploads or to end them, and of a service that has no such request."""
_NO_UPLOADS: Final = b"<ListMultipartUploadsResult/>"
_EMPTY: Final = hashlib.sha256(b"").hexdigest()
"""Of the body: these requests have none."""


class S3Uploads:
    """The uploads to one bucket that are not completed."""

    def __init__(self, bucket: str, *, region: str, endpoint: str, key_id: str, secret: str) -> None:
        """Parameters are those of S3Objects. Without keys there, nothing is ever ended."""
        self._key_id = key_id or os.environ.get("AWS_ACCESS_KEY_ID", "")
        self._secret = secret or os.environ.get("AWS_SECRET_ACCESS_KEY", "")
        self._token = "" if key_id else os.environ.get("AWS_SESSION_TOKEN", "")
        self._region = region
        self._warned = False
        self._bucket = f"{endpoint.rstrip('/') or f'https://s3.{region}.amazonaws.com'}/{bucket}"

    async def find(self, key: str) -> list[str]:
        """Returns the ids of the uploads to a key. Raises ObjectStorageError."""
        if not self._key_id:
            # The keys of a machine's role are known to obstore alone; the how-to asks for a lifecycle rule.
            return []
        answer = await asyncio.to_thread(self._send, "GET", "", {"prefix": key, "uploads": ""})
        try:
            uploads = ElementTree.fromstring(answer).findall("{*}Upload")
        except ElementTree.ParseError as error:
            raise ObjectStorageError(f"{self._bucket}: uploads to {key}: {error}") from error
        return [one.findtext("{*}UploadId", "") for one in uploads if one.findtext("{*}Key") == key]

    async def end(self, key: str) -> None:
        """Ends all uploads to a key, and so deletes their parts. Raises ObjectStorageError."""
        for upload in await self.find(key):
            await asyncio.to_thread(self._send, "DELETE", f"/{quote(key)}", {"uploadId": upload})

    def _send(self, method: str, path: str, query: Mapping[str, str]) -> bytes:
        words = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
        url = f"{self._bucket}{path}?{words}"
        request = urllib.request.Request(url, headers=self._headers(method, url), method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                body: bytes = answer.read()
                return body
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                if (method, error.code) == ("DELETE", 404):
                    return b""  # Ended since it was listed.
                if error.code in _NOT_ALLOWED:
                    # The object can be deleted all the same; the parts are left to a lifecycle rule.
                    self._warn(error.code)
                    return _NO_UPLOADS
            raise ObjectStorageError(f"{self._bucket}{path}: uploads: {error}") from error

    def _warn(self, status: int) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "! %s answers %d to a request about uploads in parts: parts that a killed broker has left stay there; give"
                " the keys s3:ListBucketMultipartUploads and s3:AbortMultipartUpload, or the bucket a lifecycle rule",
                *(self._bucket, status),
            )

    def _headers(self, method: str, url: str) -> dict[str, str]:
        """Returns the headers that sign a request without a body."""
        parts = urlsplit(url)
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        signed = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
        if self._token:
            signed["x-amz-security-token"] = self._token
        names = ";".join(signed)
        lines = [method, parts.path, parts.query, *(f"{name}:{value}" for name, value in signed.items())]
        whole = "\n".join([*lines, "", names, _EMPTY])
        scope = f"{moment[:8]}/{self._region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(whole.encode()).hexdigest()])
        key = f"AWS4{self._secret}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"{self._key_id}/{scope}"
        value = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
        return signed | {"authorization": value}
