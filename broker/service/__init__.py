"""Topics, producers, subscriptions, dispatchers: what Pulsar promises, without bytes or sockets."""
