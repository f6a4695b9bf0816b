"""OpenTelemetry spans: one for each turn of a live session, with its levels."""
