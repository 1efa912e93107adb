"""The fused kernels, in Triton: votes are formed in registers, used, and forgotten.

Letters as in `reference`: children b of a window (B = places × child types), parents j, pose dimensions h = row ×
column, positions p (images × grid). The passes:

- `sum_moments`, forward: a tile is [positions × parents]; the loop runs over children, so that sums over children
  stay in registers and only the softmax crosses threads. It keeps one number per child and position, the logarithm
  of the softmax's sum, so that the backward needs no softmax. `sum_uniform` has none at all; it finds its own centre
  first.
- `sum_parents`, backward by position: the same tile and loop; the gradients of logit, centre and precision, which are
  sums over children too. It leaves the gradient of the activation per child and position.
- `sum_children`, backward by child, once for all iterations: a tile is [children × parents]; the loop runs over
  positions. The gradient of the maps is a sum over positions and stays in registers; that of the poses is a sum over
  parents, and goes to a column buffer that `fold` gathers.

If all positions that see a child compete for it, `sum_moments` and `sum_parents` run twice: first for what a child has
in each window, which `over_windows` adds up, then for the sums.

`LAYER` is a `plan.Sizes`: the sizes of a layer, which a kernel is compiled for. A pose is a tuple of tiles. Narrow
poses, of up to 4 numbers: one tile [tile × parents] a number. Wide ones: one tile [tile × parents × columns] a row of
the pose, whose columns lie in one thread, which then reads a row at once; the compiler has a quarter of the operations
to think about. `tiles.py` and `loads.py` have what differs between the two.

Children or positions are split over programs to fill the chip; partial sums lie side by side and are added in a fixed
order. No atomics: the same input gives the same bits. Every loop loads the next step's numbers before it uses this
step's: registers are too many for other warps to hide the wait. Only `sum_children` of wide poses does not: two steps'
numbers would not fit.

Layouts: parents (p, h, j): parents are neighbours in memory. Narrow poses: maps (b, column × column, j); poses
(n, i, h, y, x) where positions are neighbours in a tile, and (n, y, x, h, i), with the activation as last h, where
children are. Wide poses: poses (n, y, x, i, h), maps (b, column of the pose, j, column of the vote).

Logits are kept in units of log 2, for `exp2`.
"""
