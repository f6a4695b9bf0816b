"""A model directory: card, shapes, tensors, tokenizer, fingerprint."""
