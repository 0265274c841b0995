"""The journals: one thread and one directory each, a group of records per fdatasync."""
