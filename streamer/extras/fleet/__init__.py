"""Many servers and verifiers as one service: a director in front of them, Ray to run them.

No audio passes through here. Ray is imported only by `streamer fleet`.
"""
