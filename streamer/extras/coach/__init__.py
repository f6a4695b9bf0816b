"""Feedback while somebody speaks: how they usually speak, and a nudge where they leave it."""

from pathlib import Path

PAGE = Path(__file__).with_name("page")  # its part of the server's page
