"""The only room that sees model, stages and net together: it joins them into what a describer or
server needs."""
