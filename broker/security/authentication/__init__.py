"""Finds out which role a client has: tokens, passwords, client certificates. Never which rights the role has."""
