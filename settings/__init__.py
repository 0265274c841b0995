"""The properties language that broker, bookie and client share: files, environment, typed tables of keys."""
