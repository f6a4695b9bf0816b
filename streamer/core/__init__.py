"""PURE: ids, bytes and small numbers in and out; no torch, async, socket, clock or global random.

It imports numpy, soxr and msgspec, and nothing else of ours.
"""
