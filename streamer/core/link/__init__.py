"""The link between edge and verifier as a pure protocol: no socket, no clock, no asyncio."""
