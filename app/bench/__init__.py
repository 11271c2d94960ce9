"""Figures of DESIGN §9, as ratios to a floor measured in the same run: one module a benchmark."""
