"""`streamer tune`: adapters learnt from recordings of your own. torch is imported when it runs."""
