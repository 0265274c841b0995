"""Topic compaction in the service: when it runs, what it reads and writes, and who reads the result.

    topic_compaction   one topic's compaction: state, horizon, start, end
    compaction_run     one run: reads the entries, asks the worker, writes the compacted ledger
    compaction_source  the entries of a run
    ledger_output      the compacted ledger while it is written
    compacted_ledger   the compacted ledger while it is read
    compacted_reads    a consumer's reads: the compacted ledger below the horizon, the log after it

`broker/compaction` decides which messages are kept.
"""
