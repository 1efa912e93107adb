"""Kernels of the maps that turn poses into votes."""
