"""The journal room: makes records durable in groups.

After a crash it proves which of them were acknowledged.

* `journal_file`: the bytes of a file; `journal_reader` reads them, `journal_channel` writes them
* `journal`: the thread that commits groups; `journals`: all journals of a bookie
* `durable_mark`: the file that says how far records were acknowledged
* `journal_chain`: the files of one directory as one sequence, for the replay at start and for `check`
* `entry_run`: what the wire hands over as one add
"""
