"""Reads offloaded ledgers straight from their storage: Spark's interface for a batch query with `ledgers=offloaded`.

The entries become the frames that a broker would send, so that one code cuts both.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from foundation.objects.object_storage import ObjectStorage, ObjectStorageError
from foundation.objects.opening import open_objects
from protocol.checksum import crc32c
from protocol.offload.blocks import OffloadFormatError, Piece, data_key, entries_of
from protocol.pulsar_api_pb2 import BaseCommand, CommandMessage, MessageIdData
from pyspark_pulsar.client.cluster import SchemaVersions, open_cluster
from pyspark_pulsar.columns.arrow_spans import texts
from pyspark_pulsar.columns.batch_builder import BatchBuilder, Cuts
from pyspark_pulsar.columns.metadata_columns import Origin
from pyspark_pulsar.columns.value_columns import ValueColumns
from pyspark_pulsar.cutting.chunks import Chunks, Parts, parts_of
from pyspark_pulsar.cutting.decryption import Decryption
from pyspark_pulsar.cutting.entry_table import EntryField, EntryTable, cut_entries
from pyspark_pulsar.cutting.frames import messages_of
from pyspark_pulsar.cutting.protobuf_columns import Ints
from pyspark_pulsar.errors import MalformedEntry, PulsarSourceError
from pyspark_pulsar.options import OffloadChoice, SourceOptions
from pyspark_pulsar.planning.offloaded_plan import LedgerPart, plan_offloaded
from pyspark_pulsar.position import WHOLE, MessagePosition
from pyspark_pulsar.python_worker import freeze_imports, one_sentence
from pyspark_pulsar.topic_names import partition_of

CHUNK_BYTES: Final = 4 << 20
"""Of pieces that are read and cut together."""
_SIZES: Final = struct.Struct(">II")


class LedgersPartition(InputPartition):
    """The parts of one task."""

    def __init__(self, parts: Sequence[LedgerPart]) -> None:
        self.parts = tuple(parts)
        """In the order in which their rows come."""


class OffloadedReader(DataSourceReader):
    """Reads a batch query of offloaded ledgers. Pickled to the tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, values: ValueColumns) -> None:
        self._options = options
        self._schema = schema
        self._values = values

    @one_sentence()
    def partitions(self) -> Sequence[InputPartition]:
        """Plans the query on the driver. OptionError, PulsarSourceError."""
        options = self._options
        try:
            plan = plan_offloaded(_storage(options.offload), options.topics, options.partitions_max)
            return [LedgersPartition(parts) for parts in asyncio.run(plan)]
        except (ObjectStorageError, OffloadFormatError) as error:
            raise PulsarSourceError(str(error)) from error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one partition, in a task. MalformedEntry, PulsarSourceError."""
        assert isinstance(partition, LedgersPartition)
        freeze_imports()
        with one_sentence():
            builder = BatchBuilder(to_arrow_schema(self._schema, timezone="UTC"), self._values, self)
            try:
                yield from PartsReader(self._options, partition.parts, builder).batches()
            except ObjectStorageError as error:
                raise PulsarSourceError(str(error)) from error

    def definition(self, topic: str, version: int) -> str:
        """Returns the definition of a schema version, which brokers alone have. OptionError without `service.url`."""
        with open_cluster(self._options.cluster) as cluster:
            return SchemaVersions(cluster).definition(topic, version)


def _storage(choice: OffloadChoice | None) -> ObjectStorage:
    assert choice is not None
    return open_objects(choice.uri, region=choice.region, endpoint=choice.endpoint)


class PartsReader:
    """Builds the rows of one task's parts."""

    def __init__(self, options: SourceOptions, parts: Sequence[LedgerPart], builder: BatchBuilder) -> None:
        self._storage = _storage(options.offload)
        self._parts = parts
        self._builder = builder
        self._topics = list(dict.fromkeys(part.topic for part in parts))
        self._partitions = np.array([partition_of(topic) for topic in self._topics], np.int64)
        self._names = texts(self._topics)
        self._chunks = Chunks()
        self._decryption = Decryption(options.private_keys, discard=options.discard_encrypted)
        self._options = options

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the order of the parts. MalformedEntry, ObjectStorageError."""
        # One loop for all requests: the library for S3 keeps its connections by loop.
        with asyncio.Runner() as runner:
            for part in self._parts:
                for pieces in _in_chunks(part.pieces):
                    batch = self._rows(runner, part, pieces)
                    if batch is not None and batch.num_rows:
                        yield batch

    def _rows(self, runner: asyncio.Runner, part: LedgerPart, pieces: list[Piece]) -> pa.RecordBatch | None:
        number = self._topics.index(part.topic)
        frames = self._frames(runner, part, pieces, number)
        messages = messages_of(frames)
        arrived = cut_entries(messages)
        if arrived.metadata.present(EntryField.TRANSACTION).any():
            raise PulsarSourceError(
                f"{part.topic}: ledger {part.ledger_id} has messages of transactions, and the storage does not say which of"
                " them were committed: read the topic without ledgers=offloaded"
            )
        opened = self._decryption.decrypt(messages, arrived)
        plain = arrived if opened is messages else cut_entries(opened)
        whole = self._chunks.join(opened, plain, partial(self._look_back, runner, part, number))
        entries = plain if whole is opened else cut_entries(whole)
        cuts = Cuts(np.full(len(entries), -1, np.int64), np.full(len(entries), WHOLE, np.int64))
        rows = self._decryption.readable(whole, entries, self._wanted(part.topic, entries, cuts))
        origin = Origin(self._names, self._partitions, np.full(len(entries), number, np.int64))
        batch, _ = self._builder.build(entries, rows, cuts, origin, whole.buffer)
        return batch

    def _wanted(self, topic: str, entries: EntryTable, cuts: Cuts) -> Ints:
        """Returns the entries that the query wants, without those that brokers write for themselves."""
        start, end = self._options.start.place(topic), self._options.end.place(topic)
        wanted = ~entries.metadata.present(EntryField.MARKER_TYPE)
        ledgers, ids = entries.ledger_ids, entries.entry_ids
        if isinstance(start, MessagePosition):
            after = (ledgers > start.ledger) | (
                (ledgers == start.ledger) & (ids >= start.entry + (start.batch == WHOLE))
            )
            wanted &= after
            cuts.after[(ledgers == start.ledger) & (ids == start.entry)] = start.batch
        if isinstance(end, MessagePosition):
            wanted &= (ledgers < end.ledger) | ((ledgers == end.ledger) & (ids <= end.entry))
            cuts.last[(ledgers == end.ledger) & (ids == end.entry)] = end.batch
        times = entries.metadata.numbers(EntryField.PUBLISH_TIME)
        from_ms, to_ms = self._options.start.time_of(topic), self._options.end.time_of(topic)
        if from_ms is not None:
            wanted &= times >= from_ms
        if to_ms is not None:
            wanted &= times <= to_ms
        found: Ints = np.flatnonzero(wanted)
        return found

    def _frames(
        self, runner: asyncio.Runner, part: LedgerPart, pieces: Sequence[Piece], number: int
    ) -> list[bytes]:
        """Reads pieces that follow one another by one request, and returns a frame for each entry."""
        key = data_key(part.uuid, part.ledger_id)
        start, end = pieces[0].offset, pieces[-1].offset + pieces[-1].length
        data = runner.run(_get(self._storage, key, start, end - start))
        frames: list[bytes] = []
        for piece in pieces:
            at = piece.offset - start
            stored = data[at : at + piece.length]
            if piece.crc is not None and crc32c(stored) != piece.crc:
                raise MalformedEntry(
                    f"{self._storage.uri}/{key}: wrong checksum from entry {piece.first_entry} on"
                )
            try:
                frames += [
                    _frame(part.ledger_id, entry_id, number, entry)
                    for entry_id, entry in entries_of(stored, piece.first_entry)
                ]
            except OffloadFormatError as error:
                raise MalformedEntry(f"{self._storage.uri}/{key}: {error}") from error
        return frames

    def _look_back(
        self, runner: asyncio.Runner, part: LedgerPart, number: int, _row: int, uuid: bytes
    ) -> Parts:
        """Reads the chunks of a message in the pieces before the part."""
        parts: Parts = {}
        for earlier in part.before:
            owner = part._replace(ledger_id=earlier.ledger_id, uuid=earlier.uuid)
            messages = messages_of(self._frames(runner, owner, [earlier.piece], number))
            opened = self._decryption.decrypt(messages, cut_entries(messages))
            parts |= parts_of(opened, cut_entries(opened), uuid)
        return parts


async def _get(storage: ObjectStorage, key: str, start: int, length: int) -> bytes:
    return await storage.get_range(key, start, length)


def _in_chunks(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yields runs of pieces without a gap, of about `CHUNK_BYTES` each."""
    run: list[Piece] = []
    size = 0
    for piece in pieces:
        if run and (size >= CHUNK_BYTES or piece.offset != run[-1].offset + run[-1].length):
            yield run
            run, size = [], 0
        run.append(piece)
        size += piece.length
    if run:
        yield run


def _frame(ledger_id: int, entry_id: int, consumer_id: int, stored: memoryview) -> bytes:
    command = BaseCommand(
        type=BaseCommand.MESSAGE,
        message=CommandMessage(
            consumer_id=consumer_id, message_id=MessageIdData(ledgerId=ledger_id, entryId=entry_id)
        ),
    ).SerializeToString()
    return _SIZES.pack(4 + len(command) + len(stored), len(command)) + command + bytes(stored)
