"""One file a command: what it takes, whom it calls, what it prints."""
