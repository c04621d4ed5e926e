"""Clipped sums of a batch, without forming the gradients of single roots; the check of a caller's module."""
