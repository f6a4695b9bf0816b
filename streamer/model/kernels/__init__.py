"""The small models' steps and windows, compiled by numba; README.md explains them."""
