"""Snapshots: a metadata store written as Parquet tables, for audits that must not disturb the cluster."""
