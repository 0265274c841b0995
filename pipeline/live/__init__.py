"""The cache's hit ratio as it is now, from the counts that a broker publishes."""
