"""Many servers and verifiers as one service: a director in front of them, Ray to run them.

    replicas.py  which replicas there are, what each said last, which one gets a new client
    director.py  sends each client to a replica with room
    manager.py   how many replicas run: scaling, starting, restarting, draining
    replica.py   one replica: a server process that is restarted when it dies
    on_ray.py    replicas as actors of Ray
    config.py    fleet.toml
    command.py   `streamer fleet` and `streamer director`

No audio passes through here. Ray is imported only by `streamer fleet`.
"""
