"""ANYIO: one stream is a session that hears, and a task for each turn."""
