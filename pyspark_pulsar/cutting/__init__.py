"""From bytes that arrived to places of messages in them, column by column; no Arrow and no Spark in here."""
