"""Plots of plain values, as fragments of SVG for pages and as matplotlib's axes for notebooks."""
