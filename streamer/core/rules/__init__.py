"""The rules of one answer: which ids may follow, when it stops, and chance that can be repeated.

Imports core.text.
"""
