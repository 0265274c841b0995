"""Replayers of recorded answers, one module per kind of file."""
