"""Starting a broker process: settings, metadata store, bookie, logs."""
