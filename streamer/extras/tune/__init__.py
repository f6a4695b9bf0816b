"""`streamer tune`: train adapters for a published model on recordings of your own.

    data.py     recordings -> labelled turns, split by speaker
    learn.py    turns -> examples -> the adapter with the lowest held-out loss
    result.py   adapter -> merged model, evaluated, with its cards
    command.py  the command and its work folder

torch and peft are imported only when the command runs.
"""
