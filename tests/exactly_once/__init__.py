"""Rows through `writeStream` while tasks and the driver are killed: each must arrive, and none twice."""
