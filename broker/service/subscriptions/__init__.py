"""Subscriptions: cursor, consumers, dispatch, redelivery, delays, and the backlog of one subscription."""
