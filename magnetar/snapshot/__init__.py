"""A metadata store written down as Parquet tables, for audits that must not disturb the cluster."""
