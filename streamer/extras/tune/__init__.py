"""`streamer tune`: train adapters for a published model on recordings of your own. torch and peft
are imported only when the command runs.
"""
