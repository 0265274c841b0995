"""Builds Arrow columns from the tables of `cutting`: values by the topic's schema, and the metadata columns.

Runs in the tasks; only the schemas (`avro_schema`, `schema_values`) are also used on the driver. `batch_builder` is the
entrance. Values are cut out of the receive buffer by Arrow itself (`arrow_spans`), without an object per message.
"""
