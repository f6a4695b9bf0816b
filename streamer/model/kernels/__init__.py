"""The small models' steps and windows, compiled by numba; README.md explains them.

Its doors are models.py and library.py. It imports core, model.checkpoint and model.engines'
interfaces; never torch.
"""
