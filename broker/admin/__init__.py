"""The REST edge: aiohttp handlers that parse, call `service`, and answer."""
