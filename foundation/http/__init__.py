"""The handlers of HTTP connections that ports of all processes share."""
