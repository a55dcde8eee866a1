"""Where P = A⁻¹ is computed: what a model's ``engine=`` takes beside a name. See docs/engines.md.

>>> from deql.engines import Disk
>>> Disk(memory="4GiB")
Disk(memory='4GiB')
"""

from deql.linalg.engines.dask_engine import Dask
from deql.linalg.engines.disk import Disk
from deql.linalg.engines.engine import Engine, Problem, Solved
from deql.linalg.engines.memory import Memory
from deql.linalg.engines.neighbours import Neighbours
from deql.linalg.engines.resources import ProblemSize, Requirement, Resources
from deql.linalg.engines.torch_engine import Torch
from deql.linalg.planner.choose import Auto

__all__ = [
    "Auto",
    "Dask",
    "Disk",
    "Engine",
    "Memory",
    "Neighbours",
    "Problem",
    "ProblemSize",
    "Requirement",
    "Resources",
    "Solved",
    "Torch",
]
