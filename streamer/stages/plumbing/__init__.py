"""What the five stages share: messages, ports, open turns, the batcher, the outlet.

Imports core.
"""
