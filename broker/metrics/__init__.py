"""Numbers that rooms count, as the text that Prometheus scrapes."""
