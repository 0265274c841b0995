"""The class that Spark finds: it checks options, finds the columns, and makes readers and writers."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_pulsar.client.cluster import open_cluster
from pyspark_pulsar.columns.metadata_columns import DEFAULT_METADATA, METADATA_COLUMNS
from pyspark_pulsar.columns.schema_values import same_schema, values_of_choice, values_of_topic
from pyspark_pulsar.columns.value_columns import RawValue, ValueColumns
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import SourceOptions, sink_options, source_options
from pyspark_pulsar.planning.topics import choose_topics
from pyspark_pulsar.reading.batch_reader import PulsarBatchReader
from pyspark_pulsar.reading.stream_reader import PulsarStreamReader
from pyspark_pulsar.topic_names import base_topic
from pyspark_pulsar.writing.writer import PulsarBatchWriter, PulsarStreamWriter


class PulsarDataSource(DataSource):
    """Spark pickles it from step to step, so what `schema` found is there for the readers."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._values: ValueColumns | None = None

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        options = source_options(self.options, streaming=None)
        self._values = find_values(options, None)
        return choose_columns(options, self._values)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        return PulsarBatchReader(options, schema, self._values_for(options, schema))

    # Spark's own names.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = source_options(self.options, streaming=True)
        return PulsarStreamReader(options, schema, self._values_for(options, schema))

    def _values_for(self, options: SourceOptions, schema: StructType) -> ValueColumns:
        """`schema` is ours, or the user's own."""
        values = self._values or find_values(options, schema)
        known = {field.name: field.dataType for field in values.spark_fields().fields}
        known |= {name: column.spark_type for name, column in METADATA_COLUMNS.items()}
        for field in schema.fields:
            if field.name not in known:
                raise OptionError(f"there is no column {field.name!r}; there are {', '.join(known)}")
            if known[field.name].simpleString() != field.dataType.simpleString():
                raise OptionError(
                    f"column {field.name!r} is {known[field.name].simpleString()}, not {field.dataType.simpleString()}"
                )
        return values

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = sink_options(self.options)
        if overwrite:
            raise OptionError('mode "overwrite" cannot be: a topic only grows; use mode("append")')
        return PulsarBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = sink_options(self.options)
        if overwrite:
            raise OptionError('outputMode "complete" cannot be: a topic only grows; use "append" or "update"')
        return PulsarStreamWriter(options, schema)


def find_values(options: SourceOptions, given: StructType | None) -> ValueColumns:
    """By the user's word, or by the schema that the topics have, which must be one."""
    if options.schema is not None:
        return values_of_choice(options.schema, given)
    if options.allow_different_schemas:
        return RawValue()
    with open_cluster(options.cluster) as cluster:
        topics = choose_topics(cluster, options.topics, wait=options.wait_for_topics)
        bases = list(dict.fromkeys(base_topic(topic) for topic in topics))
        found = [
            None if one is None else one.schema for one in cluster.schemas((base, None) for base in bases)
        ]
    for base, schema in zip(bases, found, strict=True):
        if not same_schema(found[0], schema):
            raise OptionError(
                f"{bases[0]} and {base} have different schemas: read them apart, or set "
                "allowDifferentTopicSchemas=true to get every value as bytes"
            )
    return values_of_topic(found[0] if found else None)


def choose_columns(options: SourceOptions, values: ValueColumns) -> StructType:
    """The value's columns and the six of the JVM connector, or those that `columns` names, in its order."""
    known = {field.name: field for field in values.spark_fields().fields}
    names = [*known, *DEFAULT_METADATA] if options.columns is None else list(options.columns)
    schema = StructType()
    for name in names:
        if name in known:
            schema.add(known[name])
        elif name in METADATA_COLUMNS:
            schema.add(name, METADATA_COLUMNS[name].spark_type)
        else:
            raise OptionError(f"columns names {name!r}; there are {', '.join([*known, *METADATA_COLUMNS])}")
    return schema
