"""The computations that take most of the time, as functions of tensors; `dihedral.reference` says what they compute.

| computation | how it is fast |
|---|---|
| cross-entropy over all entities | tiles with gradients in one pass; half precision on CUDA |
| sampled logistic loss | explicit gradients, compiled by numba if installed |
| Adagrad on the rows in use | compiled by numba or Triton |
| filtered ranks | counted by numba in tiles that fit the cache (`scoring.embedding`, `scoring.selection`) |
"""
