"""Speculative decoding: the state machine, its sequence, the accept rule, the gate and the counts.

Imports core.rules and core.text.
"""
