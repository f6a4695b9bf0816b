"""What each command prints, and how a process starts and ends. Imports every room."""
