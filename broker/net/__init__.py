"""The asyncio edge towards clients: bytes to commands, commands to calls, answers to one write a turn."""
