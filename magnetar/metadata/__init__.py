"""`magnetar metadata`: nodes of a metadata store in words, compared and verified."""
