"""What roots see of their rows: features and readings, dense or sparse, on the device that computes."""
