"""Figures of quality that may be published: computed from noisy tables of counts alone, with intervals.

`describe` turns the noisy tables of the evaluated splits into figures. Which tables a task has, and where a
row is counted, is said by the task.
"""
