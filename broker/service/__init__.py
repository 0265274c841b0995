"""Topics, producers and subscriptions by the rules of Pulsar, without bytes or sockets.

`dispatch` decides which consumer gets which entry; the files here hold topics, their subscriptions and their policies.
"""
