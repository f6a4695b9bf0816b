"""What every service of ours needs: one port, admission, health, metrics, notices.

Imports core.
"""
