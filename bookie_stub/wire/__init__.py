"""BookKeeper's v2 and v3 requests on TCP connections."""
