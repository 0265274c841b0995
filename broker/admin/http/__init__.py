"""HTTP parts that every handler uses: requests in, answers out, limits, foreign pages."""
