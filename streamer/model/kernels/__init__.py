"""SEALED: the small models' steps and windows, compiled by numba. Its doors are text.py and
tower.py.

Its version is the digest of every file here; imports core and the engines' types.
"""
