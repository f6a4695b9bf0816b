"""The output of each command, and how a process starts and ends. Imports every room."""
