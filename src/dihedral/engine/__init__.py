"""The engine: the few computations that take the time, each fast beside a readable reference.

| what | reference | fast |
|---|---|---|
| cross-entropy over all entities | `softmax.cross_entropy` | tiles, gradients in one pass; half precision on CUDA |
| sampled logistic loss | autograd in `training.objectives` | gradients written out; numba where installed |
| Adagrad on the rows in use | `torch.optim.Adagrad` | `adagrad.Adagrad`, compiled by numba or Triton |
| filtered ranks | brute force in the tests | `evaluation.ranking`, in tiles that stay in cache |
"""
