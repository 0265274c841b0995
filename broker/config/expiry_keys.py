"""Rows of the broker's table: expiry of messages and subscriptions, and backlog quotas.

Names and defaults are Pulsar's: its configuration class of release 4.2. The words are ours. `foundation.settings.keys.Key`
explains the columns.
"""

from __future__ import annotations

from foundation.settings.keys import Key, Section

# fmt: off
# The formatter would give each argument a line of its own; a key's facts and words read better as one row.

EXPIRY = Section("Expiry and backlog quotas", (
    Key("ttlDurationDefaultInSeconds", "int", 0, "s", low=0,
        doc="Age at which an unread message counts as acknowledged, where no policy says otherwise; 0 means never."),
    Key("messageExpiryCheckIntervalInMinutes", "int", 5, "min", low=1,
        doc="Minutes between two searches for messages whose time to live is over."),
    Key("messageExpiryIgnoresDeliveryTime", "bool", False, ours=True,
        doc="Let a delayed message expire before its delivery time, by its time to live and by hand, as Pulsar does: "
            "it is then never delivered."),
    Key("subscriptionExpirationTimeMinutes", "int", 0, "min", low=0,
        doc="Minutes without a consumer after which a subscription is deleted, where no policy says otherwise; "
            "0 means never."),
    Key("subscriptionExpiryCheckIntervalInMinutes", "int", 5, "min", low=1,
        doc="Minutes between two searches for subscriptions without a consumer."),
    Key("unackedHoleRedeliveryEnabled", "bool", True, dynamic=True, ours=True,
        doc="Deliver entries of Shared and Key_Shared subscriptions again that were read, are unacknowledged, and are "
            "pending at no connected consumer. A policy of a topic outranks this key."),
    Key("unackedHoleRedeliveryPeriodSeconds", "int", 180, "s", low=1, dynamic=True, ours=True,
        doc="Seconds between two searches for such entries, and their least time since they were read."),
    Key("unackedHoleRedeliveryPendingSeconds", "int", 0, "s", low=0, dynamic=True, ours=True,
        doc="Deliver an entry of a Shared or Key_Shared subscription again that is pending at a connected consumer for so "
            "long while entries after it are acknowledged: its acknowledgement may be lost. 0 means never; more than the "
            "longest time that a consumer works on a message and delays its negative acknowledgements."),
    Key("backlogQuotaCheckEnabled", "bool", True,
        doc="Compare the backlogs with their quotas. While this is off, no quota has an effect."),
    Key("backlogQuotaCheckIntervalInSeconds", "int", 60, "s", low=1,
        doc="Seconds between two comparisons of the backlogs with their quotas."),
    Key("backlogQuotaDefaultLimitBytes", "long", -1, "bytes", low=-1,
        doc="Largest backlog of a topic's slowest subscription in bytes, where no policy says otherwise; -1 means "
            "no limit."),
    Key("backlogQuotaDefaultLimitGB", "double", -1.0, "GiB", low=-1, standalone=10.0,
        doc="The same in GiB; it counts where it is above 0."),
    Key("backlogQuotaDefaultLimitSecond", "int", -1, "s", low=-1,
        doc="Age that the oldest unacknowledged message of a topic may reach, where no policy says otherwise; -1 means "
            "no limit."),
    Key("backlogQuotaDefaultRetentionPolicy", "string", "producer_request_hold",
        choices=("producer_request_hold", "producer_exception", "consumer_backlog_eviction"),
        doc="What happens at the quota: producers are held, producers get an error, or the oldest messages are "
            "taken from the slowest subscriptions."),
    Key("preciseTimeBasedBacklogQuotaCheck", "bool", False,
        doc="Take the age of the oldest message from the message itself. Otherwise it is the time since its ledger "
            "was closed, and a message in an open ledger has no age."),
))
