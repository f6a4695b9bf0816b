"""How long a test waits for what must come. In: nothing. Out: nets, for what hangs."""

PATIENCE_S = 120.0  # so long that no load of the machine decides a test
EXIT_S = 25.0  # for a server that ends: below the 30 s after which it cuts those who still speak
