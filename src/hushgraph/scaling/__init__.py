"""Numbers of any scale: noisy histograms of training rows, and the constants that columns are scaled with."""
