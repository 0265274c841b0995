"""TLS: contexts of servers and clients made of PEM files, certificates that are read again, ports that accept TLS."""
