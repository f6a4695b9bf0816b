"""Large models with weights of 8 or 4 bits, as torch runs them around a kernel of ours.

It imports core, model.checkpoint, model.engines and model.kernels' few_bits.py.
"""
