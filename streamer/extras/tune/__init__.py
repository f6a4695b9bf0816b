"""`streamer tune`: a user's recordings make a model tell pitch, rate and pauses better.

    listen -> split -> examples -> training -> merge -> judge -> report

Imports every room but net and stages. Only lora.py, training.py, state.py and merge.py need torch,
and they are imported late.
"""
