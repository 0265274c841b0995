"""`magnetar admin GROUP COMMAND`: pulsar-admin's commands, each a row of `commands.tsv` that becomes one request."""
