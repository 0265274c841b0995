"""The rooms that every process needs: nouns, the event loop, settings, HTTP, TLS, sessions with ZooKeeper."""
