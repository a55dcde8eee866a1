"""The graph and what is made of it by their definitions, with matrices of all vertices, in float64."""

import numpy as np
import torch
from scipy.sparse import csr_array

from deql.models.neural.graph import BipartiteGraph

CPU = torch.device("cpu")

TASTES = np.array(
    [
        [2, 0, 1, 0, 0, 3],
        [0, 0, 4, 0, 0, 0],
        [1, 0, 1, 2, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 2, 0, 1, 1],
        [3, 0, 0, 0, 2, 0],
        [0, 0, 1, 1, 0, 4],
    ]
) / 4.0  # fmt: skip
"""Weights of seven users and six items, one user and one item alone; float32 holds them."""


def graph_of(R):
    matrix = csr_array(R)
    return BipartiteGraph.from_arrays(matrix.indptr, matrix.indices, matrix.data, matrix.shape[1], CPU)


def adjacency(R):
    """Â."""
    degrees = np.concatenate([R.sum(axis=1), R.sum(axis=0)])
    scale = np.divide(1, np.sqrt(degrees), where=degrees > 0, out=np.zeros(len(degrees)))
    whole = np.block([[np.zeros((len(R), len(R))), R], [R.T, np.zeros((R.shape[1], R.shape[1]))]])
    return torch.from_numpy(scale[:, None] * whole * scale)


def summed_powers(A, E, most):
    return sum((torch.linalg.matrix_power(A, power) @ E for power in range(most + 1)), torch.zeros_like(E))


def propagated(A, E, layers):
    return summed_powers(A, E, layers) / (layers + 1)


def vectors(count, rank=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, rank, generator=generator, dtype=torch.float64)


def gradient(value, by):
    return torch.autograd.grad(value, by)[0]
