"""ANYIO: one stream is chunk | prefill | draft | verify | emit, joined by bounded queues.

Models come in as Protocol objects; it imports core.
"""
