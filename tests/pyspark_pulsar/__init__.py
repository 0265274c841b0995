"""The Spark source and sink: units without Spark, and everything end to end in one session against a broker."""
