"""Roles of clients, and the actions that a role may take."""
