"""How somebody speaks, as numbers with units: their definitions, and nothing that hears."""
