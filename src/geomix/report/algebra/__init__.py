"""The algebra study's results pages: a table, a figure and a verdict in one sentence for each phase, from records alone."""
