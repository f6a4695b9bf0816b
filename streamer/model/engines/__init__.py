"""The forms in which a model runs: torch, compiled kernels, int8, CUDA graphs, transformers' own
modules.

Imports model.checkpoint and model.kernels.
"""
