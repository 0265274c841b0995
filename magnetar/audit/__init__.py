"""Audit: finds leaks in the metadata store of a running cluster, and takes them out of use step by step."""
