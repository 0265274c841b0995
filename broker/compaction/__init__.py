"""Topic compaction: the two passes over a topic's entries that keep the latest message of each key.

    latest_messages   pass one: which messages are the latest of their key
    rewriting         pass two: a batch without its other messages
    passes            both passes as one object, without I/O
    worker            a process that runs them, so that the broker's event loop does not
    worker_process    the broker's end of that process
    compacted_entry   the format of an entry in a compacted ledger

`broker/service/compaction` reads the entries and writes the compacted ledger. Topic compaction has nothing in common
with the compaction of entry logs in a bookie.
"""
