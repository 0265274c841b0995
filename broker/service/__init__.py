"""Topics, producers and subscriptions by Pulsar's rules, without bytes or sockets.

`dispatch` decides which consumer gets which entry; the files here hold topics, their subscriptions and their policies.
"""
