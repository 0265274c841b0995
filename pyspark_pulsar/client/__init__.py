"""Blocking connections to a cluster's brokers, and the requests that source and sink make.

`connection` is one socket; `cluster` finds the broker of a topic and holds one connection per broker. Nothing in here
is pickled: settings travel to the tasks, and each process connects for itself.
"""
