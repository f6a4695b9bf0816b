"""The parts that every service shares: one port, admission, health, metrics, notices."""
