"""Helpers that several folders of tests share. No helper here judges a test."""
