"""From data and an epsilon to a run: prepare, train, session, trainer, process groups."""
