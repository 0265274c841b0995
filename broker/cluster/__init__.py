"""Several brokers on one metadata store: who is there, who leads, and who owns which bundle, in Pulsar's nodes.

records     the JSON of the nodes, as Apache's brokers read and write it
members     the brokers that are there (`/loadbalance/brokers`), and their leader (`/loadbalance/leader`)
leases      the bundles that this broker owns (`/namespace/<tenant>/<namespace>/<range>`)
hand_over   bundles that are given up: their next owners, and what clients are told
loads       loads of brokers and bundles, and their averages
reports     what this broker tells of its load, in its registration
placement, isolation, shedding, splitting
            pure decisions about bundles, by Apache's rules
balance     the leader's decisions, by the reports of all brokers
orders      the requests that carry them out
moves       what became of bundles, and why, for people (`/loadbalance/magnetar-moves/<broker>`)
ownership   the answers to lookups; what may be opened here
"""
