"""The rooms that every process needs: nouns, the event loop, settings, TLS, sessions with ZooKeeper."""
