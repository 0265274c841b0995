"""The policies beside the removal queue of PIP-430: the first revision's stash, and our own `magnetar`."""
