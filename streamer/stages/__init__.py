"""ANYIO: one stream is chunk | prefill | answer, joined by bounded queues.

Models come in as Protocol objects; it imports core.
"""
