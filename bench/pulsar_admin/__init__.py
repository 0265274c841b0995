"""A session of Apache's pulsar-admin against one broker or two."""
