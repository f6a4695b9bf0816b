"""What loading stands on: ONNX Runtime by its one door, how far loading is, locks.

Imports nothing of ours.
"""
