"""Many servers and verifiers as one service: a director in front of them, Ray to run them.

    options.py   the commands' options, and fleet.toml
    director.py  the replicas that are known; sends each client to one with room
    tickets.py   let a client that a director sends on in without its key
    manager.py   how many replicas run, as actors of Ray, each with a server process
    command.py   `streamer fleet` and `streamer director`

No audio passes through here. Ray is imported only by `streamer fleet`.
"""
