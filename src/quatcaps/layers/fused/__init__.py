"""Residual blocks in training on a GPU by kernels of our own: normalisation and ReLU happen where a convolution reads,
the shortcut and the moments for the next normalisation where it writes. `residual.ResidualBlock` is the formula."""
