"""The run on disk: folder, configuration, checkpoint."""
