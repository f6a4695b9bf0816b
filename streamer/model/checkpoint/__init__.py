"""A model directory: card, shapes, tensors, tokenizer, fingerprint. Bad files end in one line.

Imports core.
"""
