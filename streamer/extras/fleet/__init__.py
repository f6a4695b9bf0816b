"""Many processes of ours as one service: who gets a newcomer, how many there are, who starts them.

`choice` and `scaling` are pure. `roster` asks replicas how they are, `director` sends clients on to
them, `manager` has Ray start and stop them. No audio passes through here. Imports net and commands;
Ray is imported only where `streamer fleet` runs.
"""
