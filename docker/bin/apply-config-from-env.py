#!/opt/magnetar/bin/python -I
"""For entry points that call `bin/apply-config-from-env.py conf/broker.conf && exec bin/pulsar broker`.

Changes nothing: the broker and the bookie read the same environment variables themselves when they start, a
variable with the name of a key, or with `PULSAR_PREFIX_` before it. `magnetar config show --origin` prints what holds.
"""

import sys

files = ", ".join(sys.argv[1:]) or "no file"
print(f"{files}: left as it is, the environment is read at the start (see magnetar config show --origin)")
