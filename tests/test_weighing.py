import sys

import numpy as np
import pytest

from deql.weighing import Sample, weigh

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a peak cannot be forgotten")
def test_what_the_work_held_at_once_is_its_memory():
    earlier = np.ones(96 * MIB, np.uint8)  # a peak of its own, before the work
    del earlier

    def work():
        first = np.ones(48 * MIB, np.uint8).sum()  # freed before the next
        return first + np.ones(24 * MIB, np.uint8).sum()

    made, sample = weigh(work)
    assert made == 72 * MIB
    assert 40 < sample.beyond_mib < 64


def test_cores_and_what_is_beyond():
    sample = Sample(seconds=2.0, cpu_seconds=3.0, peak_mib=500.0, before_mib=120.0)
    assert (sample.cores, sample.beyond_mib) == (1.5, 380.0)
