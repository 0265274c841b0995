"""The numbers of topics: one table of them, one reader of all open topics, and the growth of each in a window.

The printers stand above: Prometheus (`broker/metrics`), the statistics of the admin API, the console, `magnetar top`.
"""
