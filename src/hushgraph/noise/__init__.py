"""Gaussian noise on clipped sums and boards: exact draws on a grid."""
