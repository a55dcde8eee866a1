import subprocess
import sys

import pytest

from deql._system.measure import Measurement

WORK = """
import numpy as np
from deql._system.measure import measure

earlier = np.ones(96 * 2**20, np.uint8)  # a peak of its own, before the work
del earlier


def work():
    first = np.ones(48 * 2**20, np.uint8).sum()  # freed before the next
    return first + np.ones(24 * 2**20, np.uint8).sum()


made, sample = measure(work)
print(made, sample.beyond_mib)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a peak cannot be forgotten")
def test_what_the_work_held_at_once_is_its_memory():
    # In a process of its own, as work is meant to be weighed: this one may give memory back meanwhile.
    said = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, text=True, check=True).stdout
    made, beyond = map(float, said.split())
    assert made == 72 * 2**20
    assert 40 < beyond < 64


def test_cores_and_what_is_beyond():
    sample = Measurement(seconds=2.0, cpu_seconds=3.0, peak_mib=500.0, before_mib=120.0)
    assert (sample.cores, sample.beyond_mib) == (1.5, 380.0)
