"""The computations that take most of the time: a readable reference and a fast version of each.

| computation | reference | fast version |
|---|---|---|
| cross-entropy over all entities | `softmax.cross_entropy` | tiles with gradients in one pass; half precision on CUDA |
| sampled logistic loss | autograd in `objectives.logistic` | explicit gradients, compiled by numba if installed |
| Adagrad on the rows in use | `torch.optim.Adagrad` | `adagrad.Adagrad`, compiled by numba or Triton |
| filtered ranks | brute force in the tests | `scoring.embedding` and `scoring.selection`, in tiles that fit the cache |
"""
