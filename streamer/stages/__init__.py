"""ANYIO: one stream as stages joined by bounded queues. Models come in as Protocol objects; torch stays outside."""
