"""The paper's tables: runs by row and seed, their records, and what is drawn from them."""
