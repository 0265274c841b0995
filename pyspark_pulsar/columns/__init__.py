"""From places of messages to Arrow columns: values by their schema, and the metadata columns."""
