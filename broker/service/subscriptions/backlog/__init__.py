"""Operations on the backlog of a subscription: counting, skipping, expiring, and looking at its entries."""
