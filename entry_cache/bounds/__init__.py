"""Pinned receive buffers, and a size bound that counts them."""
