"""OpenTelemetry spans: one for each turn of a live session, with its levels. Needs the extra otel.

spans.py  the spans, and where they are sent
"""
