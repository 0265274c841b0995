"""Stores large offsets as files named by their content, in a folder that every driver of the query reaches.

With 600,000 topics an offset takes megabytes, and Spark writes it into its checkpoint and its progress events several
times per micro-batch. With files, only their names go there.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque

import pyarrow as pa
from pyarrow import fs

from pyspark_pulsar.errors import OptionError, PulsarSourceError

_KEPT_FILES = 256
"""Position files that are kept; a restart needs those of the last 100 batches, which Spark keeps by default."""


class OffsetFolder:
    """The folder of the option `offsetsLocation`. Implements `offsets.OffsetFiles`; lives on the driver."""

    def __init__(self, location: str) -> None:
        """`location` is a path or a URI that pyarrow knows: file, s3, gs, hdfs, abfs. OptionError."""
        self._location = location
        try:
            uri = location if "://" in location else os.path.abspath(location)
            self._files, self._folder = fs.FileSystem.from_uri(uri)
            self._files.create_dir(self._folder, recursive=True)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise OptionError(f"offsetsLocation is {location!r}, which cannot be used: {error}") from None
        self._written: deque[str] = deque()
        self._known: set[str] = set()

    def put(self, name: str, content: bytes) -> None:
        """Stores `content`; a file that exists already is kept, because its name is the digest of its content.

        Position files beyond the newest 256 of this driver are deleted.
        """
        if name in self._known:
            return
        path = f"{self._folder}/{name}"
        # Write beside it and rename, so that a driver killed meanwhile leaves no incomplete file under this name.
        if self._files.get_file_info(path).type == fs.FileType.NotFound:
            with self._files.open_output_stream(f"{path}.{os.getpid()}") as stream:
                stream.write(content)
            self._files.move(f"{path}.{os.getpid()}", path)
        self._known.add(name)
        if name.startswith("positions-"):
            self._written.append(name)
            self._forget_old()

    def _forget_old(self) -> None:
        while len(self._written) > _KEPT_FILES:
            name = self._written.popleft()
            self._known.discard(name)
            self._files.delete_file(f"{self._folder}/{name}")

    def get(self, name: str) -> bytes:
        """Reads a file. PulsarSourceError where it is missing, or its content does not fit its name."""
        try:
            with self._files.open_input_stream(f"{self._folder}/{name}") as stream:
                content = bytes(stream.read())
        except OSError as error:
            raise PulsarSourceError(
                f"offsetsLocation {self._location} has no {name}, which the checkpoint needs: {error}"
            ) from None
        if hashlib.sha256(content).hexdigest()[:24] != name.partition("-")[2]:
            raise PulsarSourceError(f"{name} in offsetsLocation {self._location} is damaged")
        return content
