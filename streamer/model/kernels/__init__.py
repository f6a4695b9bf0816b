"""The small models' steps and windows, compiled by numba; README.md tells how.

Its doors are text.py and tower.py. It imports core, model.checkpoint and model.engines' interfaces;
never torch.
"""
