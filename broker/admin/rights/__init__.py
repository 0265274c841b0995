"""Rights over REST: which right each route needs, the check before the handler, and the audit trail."""
