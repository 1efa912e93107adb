"""What measures speed and memory: whole networks by routing backend, and one routing layer by its size."""
