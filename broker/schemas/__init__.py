"""Schemas of topics: their versions in the metadata store, and the question whether a new one fits the older ones.

`schema_registry` is the entrance. `schema_store` keeps versions, `definitions` checks one schema, `compatibility` compares
two. Nothing here knows topics, connections or policies: `broker/service/topics/topic_schemas.py` does.
"""
