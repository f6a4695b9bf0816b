"""Feedback while somebody speaks: how they usually speak, and a nudge where they leave it."""
