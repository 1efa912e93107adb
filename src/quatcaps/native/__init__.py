"""Functions in C for a CPU: compiled on first use, and called by as many threads as their work is worth."""
