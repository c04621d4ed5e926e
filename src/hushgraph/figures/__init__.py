"""Figures about quality: tables of counts, their noise, and what is computed from them."""
