"""Work on many topics, and on topics from outside: partitions, deletion, rounds over backlogs, ends of transactions."""
