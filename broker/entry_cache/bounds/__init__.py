"""What cached entries cost beyond their own bytes, and a bound that counts it."""
