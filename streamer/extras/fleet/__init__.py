"""Many servers and verifiers as one service: a director in front of them, Ray to run them.

    options.py   the commands' options, and fleet.toml
    replicas.py  the replicas that are known, their last status, and the choice for a new client
    director.py  sends each client to a replica with room
    manager.py   how many replicas run: scaling, starting, restarting, draining
    on_ray.py    replicas as actors of Ray, each with a server process
    command.py   `streamer fleet` and `streamer director`

No audio passes through here. Ray is imported only by `streamer fleet`.
"""
