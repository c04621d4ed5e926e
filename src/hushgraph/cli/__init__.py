"""The command line: one file a command, with what it prints. It holds no logic, and nobody imports it."""
