"""The policies as machine code over dense ids, equal to the objects beside this folder request by request."""
