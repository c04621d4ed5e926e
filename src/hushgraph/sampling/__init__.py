"""Bounded lists, trees and batches: which reads training may use, and which roots a step takes."""
