"""Speculative decoding: the state machine, its sequence, the accept rule, the gate, the counts."""
