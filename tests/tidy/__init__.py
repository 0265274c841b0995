"""House rules that a reader can rely on without checking. A failure names the file, the line and the rule.

`test_imports` holds which room may import which and which rooms stay pure, `test_sizes` how large functions, classes,
files and folders grow, `test_words` which names have docstrings, how they begin and in which voice,
`test_public_files` what no file may name. Each rule is a function from parsed modules to findings, and is tried on small
invented sources as well.
"""
