import numpy as np
import pytest
from scipy.sparse import csr_array


@pytest.fixture
def asymmetric_ratings():
    """Real-valued, with popularities so uneven that W is far from symmetric."""
    generator = np.random.default_rng(7)
    R = (generator.random((40, 7)) < np.linspace(0.15, 0.9, 7)) * generator.uniform(0.5, 2.0, (40, 7))
    return csr_array(R)
