"""How long a test waits for what must come. In: nothing. Out: a net, for what hangs."""

PATIENCE_S = 120.0  # so long that no load of the machine decides a test
