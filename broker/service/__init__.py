"""Topics, producers and subscriptions by Pulsar's rules, without bytes or sockets.

Layers, each importing those before it alone: `namespaces`, `policies`, `limits`, `compaction` and `transactions`,
`subscriptions`, `topics`, `lifecycle`. The modules here are the words that all layers share.
"""
