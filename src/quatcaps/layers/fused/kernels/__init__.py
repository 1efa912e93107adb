"""Triton kernels of residual blocks. Features lie with channels last: (image, row, column, channel)."""
