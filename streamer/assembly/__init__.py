"""The only room that sees model, stages and net together: it joins them for others."""
