"""PURE: no torch, async, socket, clock or global random. Imports numpy, soxr and msgspec alone."""
