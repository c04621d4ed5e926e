"""The datasets that have a name: what is published about them, how they are downloaded and read."""
