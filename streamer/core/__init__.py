"""PURE: ids, bytes and small numbers in and out; no torch, async, socket, clock or global random."""
