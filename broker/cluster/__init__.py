"""Several brokers on one metadata store: who is there, who leads, and who owns which bundle, in Pulsar's nodes.

records     the JSON of the nodes, as Apache's brokers read and write it
members     the brokers that are there (`/loadbalance/brokers`), and their leader (`/loadbalance/leader`)
leases      the bundles that this broker owns (`/namespace/<tenant>/<namespace>/<range>`)
hand_over   bundles that are given up: their next owners, and what clients are told
moves       what became of bundles, and why, for people (`/loadbalance/magnetar-moves/<broker>`)
ownership   the answers to lookups; what may be opened here
"""
