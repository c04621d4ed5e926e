"""Drawing with matplotlib: the common look of figures."""
