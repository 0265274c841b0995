"""Dispatch: decides which consumer of a subscription gets which entry, and sends it."""
