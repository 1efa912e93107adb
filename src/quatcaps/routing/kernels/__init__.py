"""Kernels of the routings' finishing functions."""
