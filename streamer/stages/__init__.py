"""ANYIO: one stream is chunk | prefill | answer, joined by bounded queues.

Models come in as Parts (ports.py); it imports core.
"""
