"""The rules for adds, reads, fences and deletions, and their answers.

`registry` holds the known ledgers. `adds`, `reads`, `ledger_records` (fences, explicit LACs), `last_confirmed` and
`removals` are called by the `wire` room and by the embedded broker. All of them run in the loop's thread.
"""
