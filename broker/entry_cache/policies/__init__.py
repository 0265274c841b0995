"""Policies: which cached entries stay. One file each; what they have in common is `policy`."""
