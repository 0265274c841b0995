"""The tools room: looks into a bookie's files and mends them.

Its commands are `magnetar bookie dump`, `check` and `index rebuild`.

* `dump`: files as text, one line per thing in them
* `check` (`check_files`, `check_report`, `log_completeness`): are all files whole and all entries readable
* `index_rebuild` (`ledger_index_rebuild`, `ledger_row_sources`; `location_index_rebuild`, `previous_locations`,
  `journal_salvage`): the indexes anew from the entry logs

All but `dump` want the bookie down.
"""
