"""A model directory: its card, shapes, tensors, tokenizer and fingerprint. Bad files end in one
clear line.

Imports core.
"""
