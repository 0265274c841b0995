"""The nouns of broker and libraries: position, entry, range set, topic name, errors. They import no other room."""
