"""The storage beside the bookies: copies of ledgers as objects, laid out by `protocol/offload/blocks.py`."""
