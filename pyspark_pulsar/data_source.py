"""The class that Spark finds: it checks the options, determines the columns, and creates readers and writers.

Spark calls it in Python worker processes beside the driver and pickles the results to the tasks, so no object in here
holds a connection.
"""

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
from pyspark_pulsar.python_worker import one_sentence
from pyspark_pulsar.reading.batch_reader import PulsarBatchReader
from pyspark_pulsar.reading.stream_reader import PulsarStreamReader
from pyspark_pulsar.topic_names import base_topic
from pyspark_pulsar.writing.writer import PulsarBatchWriter, PulsarStreamWriter


class PulsarDataSource(DataSource):
    """Format "pulsar" in `spark.read`, `readStream`, `write` and `writeStream`.

    Spark pickles the object between its calls, so the value columns that `schema` found reach `reader`; the topics'
    schemas are requested from the broker once per query.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._values: ValueColumns | None = None

    @classmethod
    def name(cls) -> str:
        """Returns the name for `format(...)`."""
        return "pulsar"

    @one_sentence()
    def schema(self) -> StructType:
        """Returns the columns of a read without a user-given schema. OptionError, BrokerLost, BrokerRefused."""
        options = source_options(self.options, streaming=None)
        self._values = find_values(options, None)
        return choose_columns(options, self._values)

    @one_sentence()
    def reader(self, schema: StructType) -> DataSourceReader:
        """Creates the reader of a batch query. OptionError where a column of `schema` does not exist."""
        options = source_options(self.options, streaming=False)
        values = self._values_for(options, schema)
        if options.offload is not None:
            from pyspark_pulsar.reading.offloaded_reader import OffloadedReader  # Late: few queries need it.

            return OffloadedReader(options, schema, values)
        return PulsarBatchReader(options, schema, values)

    # The names in camel case are those of Spark's interface.
    @one_sentence()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Creates the reader of a stream. OptionError where a column of `schema` does not exist."""
        options = source_options(self.options, streaming=True)
        return PulsarStreamReader(options, schema, self._values_for(options, schema))

    def _values_for(self, options: SourceOptions, schema: StructType) -> ValueColumns:
        """Returns the value columns; `schema` is what the method `schema` returned, or the user's `.schema(...)`."""
        values = self._values or find_values(options, schema)
        known = {field.name: field.dataType for field in values.spark_fields().fields}
        known |= {name: column.spark_type for name, column in METADATA_COLUMNS.items()}
        for field in schema.fields:
            if field.name not in known:
                raise OptionError(f"there is no column {field.name!r}; choose from {', '.join(known)}")
            if known[field.name].simpleString() != field.dataType.simpleString():
                raise OptionError(
                    f"column {field.name!r} is {known[field.name].simpleString()}, not "
                    f"{field.dataType.simpleString()}: read it as it is and cast it"
                )
        return values

    @one_sentence()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Creates the writer of a batch query. OptionError for mode "overwrite"; BrokerRefused and TlsRefused."""
        options = sink_options(self.options)
        if overwrite:
            raise OptionError('mode "overwrite" is impossible: a topic only grows; use mode("append")')
        writer = PulsarBatchWriter(options, schema)
        writer.check_access()
        return writer

    @one_sentence()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Creates the writer of a micro-batch. OptionError for outputMode "complete"; BrokerRefused and TlsRefused."""
        options = sink_options(self.options)
        if overwrite:
            raise OptionError(
                'outputMode "complete" is impossible: a topic only grows; use "append", or foreachBatch with mode "update"'
            )
        writer = PulsarStreamWriter(options, schema)
        writer.check_access()
        return writer


def find_values(options: SourceOptions, given: StructType | None) -> ValueColumns:
    """Determines the value columns from the options, or else from the schema of the topics.

    `given` is the user's `.schema(...)`. OptionError where the topics have different schemas.
    """
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
                f"{bases[0]} and {base} have different schemas: read them in two queries, or set "
                "allowDifferentTopicSchemas=true to get every value as bytes"
            )
    return values_of_topic(found[0] if found else None)


def choose_columns(options: SourceOptions, values: ValueColumns) -> StructType:
    """Returns the columns of the option `columns`, or else the value's columns and the six of the JVM connector."""
    known = {field.name: field for field in values.spark_fields().fields}
    names = [*known, *DEFAULT_METADATA] if options.columns is None else list(options.columns)
    schema = StructType()
    for name in names:
        if name in known:
            schema.add(known[name])
        elif name in METADATA_COLUMNS:
            schema.add(name, METADATA_COLUMNS[name].spark_type)
        else:
            raise OptionError(
                f"columns names {name!r}, which does not exist; choose from {', '.join([*known, *METADATA_COLUMNS])}"
            )
    return schema
