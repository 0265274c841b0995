"""The records of Apache Pulsar's managed ledgers, as values of ours."""
