"""One model's step, and the forms in which torch runs it: fixed shapes, stable, transformers.

engine.py needs no torch. Imports core and model.checkpoint.
"""
