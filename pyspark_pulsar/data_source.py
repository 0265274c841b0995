"""The class that Spark finds: it checks options, finds the columns, and makes readers and writers."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_pulsar.columns.metadata_columns import DEFAULT_METADATA, METADATA_COLUMNS
from pyspark_pulsar.columns.value_columns import RawValue, ValueColumns
from pyspark_pulsar.errors import OptionError
from pyspark_pulsar.options import SourceOptions, sink_options, source_options
from pyspark_pulsar.reading.batch_reader import PulsarBatchReader
from pyspark_pulsar.reading.stream_reader import PulsarStreamReader
from pyspark_pulsar.writing.writer import PulsarBatchWriter, PulsarStreamWriter


class PulsarDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        options = source_options(self.options, streaming=None)
        return choose_columns(options, RawValue())

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        return PulsarBatchReader(options, schema, RawValue())

    # Spark's own name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = source_options(self.options, streaming=True)
        return PulsarStreamReader(options, schema, RawValue())

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
