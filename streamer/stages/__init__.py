"""ANYIO: one stream is chunk | prefill | answer, joined by bounded queues."""
