"""One model's step, and the forms in which torch runs it: fixed shapes, stable, transformers.

engine.py, kv_slots.py and rotary.py need no torch. Imports core and model.checkpoint.
"""
