"""Plans for machines that are made up: what is chosen and said is worked out by hand."""

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import deql
from deql._system.formatting import as_json, parse_bytes, show_bytes
from deql._system.threads import thread_count
from deql.engines import Auto, Disk, Torch
from deql.errors import DataError, ParameterError, TooLargeError
from deql.linalg.engines import disk, resources
from deql.linalg.engines.resources import Device, ProblemSize, Requirement, Resources
from deql.linalg.planner import calibration, choose, planner
from deql.linalg.planner.calibration import device_rates, disk_rates, predict
from deql.linalg.planner.choose import choose_engine

GIB = 2**30


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with so much free, in GiB; it says whether somebody looked for devices."""
    looked = []

    def make(memory=64.0, disk=500.0, on_disk=True, writable=True, devices=()):
        found = tuple(
            Device(f"cuda:{place}", "made up", int(size * GIB), 80 * GIB) for place, size in enumerate(devices)
        )

        def find(folder=None, devices=True, device=None):
            looked.append(devices)
            place = Path(folder or tmp_path)
            return Resources(
                int(memory * GIB), int(disk * GIB), place, on_disk, writable, "", bool(found), found if devices else ()
            )

        for module in (planner, choose):
            monkeypatch.setattr(module, "find_resources", find)
        return looked

    return make


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * GIB), ("512MiB", 2**29), ("1.5 GB", 1_500_000_000), (4_000_000_000, 4_000_000_000),
        ("2g", 2 * GIB), ("100kb", 100_000), (" 3 Ki ", 3072), ("1tib", 2**40), ("7_000", 7000), ("12B", 12),
        (np.int64(5), 5),
    ],
)  # fmt: skip
def test_amounts_of_memory_as_people_write_them(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "-4GiB", "4 elephants", "0", 0, -1, True, None, "1e3", "4GiB 2", "nan", "."]
)
def test_nonsense_is_no_amount_of_memory(text):
    with pytest.raises(ParameterError, match="memory must be a number of bytes such as '4GiB'"):
        parse_bytes(text)


class TestChoice:
    @pytest.mark.parametrize(
        ("n", "there", "engine"),
        [
            (1000, {"memory": 0.0}, "memory"),  # nobody looks
            (3000, {"devices": (70,)}, "memory"),
            (12_000, {"devices": (70,)}, "torch"),
            (38_048, {}, "memory"),
            (38_048, {"memory": 3.5}, "memory"),
            (38_048, {"memory": 2.5}, "disk"),
            (91_599, {"memory": 20, "devices": (40,)}, "torch"),
            (91_599, {"memory": 20, "devices": (10,)}, "torch"),  # streams
            (91_599, {"memory": 20, "devices": (1,)}, "memory"),
            (91_599, {"memory": 10, "devices": (40,)}, "disk"),  # nowhere to put P
        ],
    )
    def test_the_first_that_fits(self, machine, n, there, engine):
        machine(**there)
        assert choose_engine(n).name == engine
        if n > 2048:
            assert deql.plan(n, calibrate=False).engine == engine

    def test_double_precision_takes_twice_as_much(self, machine):
        machine(memory=4)
        assert choose_engine(38_048).name == "memory"
        assert choose_engine(38_048, dtype="float64").name == "disk"

    def test_what_may_be_taken_bounds_the_memory_engine_too(self, machine):
        machine()
        assert choose_engine(20_108, engine=Auto(memory="512MiB")).name == "disk"
        assert choose_engine(20_108, engine=Auto(memory="2GiB")).name == "memory"

    def test_a_gram_matrix_that_is_kept_needs_its_own_room(self, machine):
        machine(memory=4)
        assert choose_engine(38_048).name == "memory"
        with pytest.raises(
            TooLargeError, match=r"in memory it needs 5\.9 GiB .*; on disk it keeps one matrix"
        ) as error:
            choose_engine(38_048, matrices=2)
        assert "engine='disk'" not in str(error.value)
        machine(memory=8, devices=(6,))
        assert (choose_engine(38_048).name, choose_engine(38_048, matrices=2).name) == ("torch", "memory")

    def test_what_is_needed_beside_the_matrix_counts(self, machine):
        machine(memory=4)
        assert [choose_engine(38_048, beside=beside).name for beside in (0, 2**29, 2**31)] == [
            "memory",
            "memory",
            "disk",
        ]
        with pytest.raises(TooLargeError, match="38,048 items"):
            choose_engine(38_048, beside=2**33)

    def test_devices_are_looked_for_only_when_they_would_be_used(self, machine):
        looked = machine()
        for n, engine in ((2000, "auto"), (3999, "auto"), (9000, "memory"), (9000, "disk")):
            choose_engine(n, engine=engine)
        assert not any(looked)
        choose_engine(12_000)
        assert looked[-1]

    def test_the_device_is_the_one_that_was_named(self, machine, monkeypatch):
        machine(devices=(70,))
        assert not deql.plan(91_599, engine="torch", calibrate=False).chosen.passes
        machine(devices=(1,))
        with pytest.raises(TooLargeError, match=r"of memory on cuda:0, and 1\.0 GiB are free"):
            choose_engine(91_599, engine="torch")
        machine(devices=())
        monkeypatch.setattr(
            choose, "find_resources", lambda *_a, **_o: Resources(64 * GIB, 0, Path(), True, torch=True)
        )
        with pytest.raises(ParameterError, match="engine='torch' cannot be used: there is no device cuda:7"):
            choose_engine(91_599, engine=Torch("cuda:7"))

    def test_torch_on_the_processor_is_used_when_asked_for_and_never_else(self, machine):
        machine(devices=(70,))
        assert choose_engine(5000, engine=Torch("cpu")).name == "torch"
        assert choose_engine(5000, engine=Auto(device="cpu")).name == "memory"

    def test_bad_arguments(self):
        names = "'auto', 'memory', 'disk', 'torch', 'dask' or 'neighbours'"
        with pytest.raises(ParameterError, match=f"engine must be {names}, got 'gpu'"):
            choose_engine(10, engine="gpu")
        with pytest.raises(ParameterError, match="dtype must be"):
            deql.plan(10, dtype="int8")
        for nonsense in (0, -5, "many", 2.5, None, [1, 2, 3]):
            with pytest.raises(DataError, match="number of items"):
                deql.plan(nonsense)


class TestTooLarge:
    def test_all_that_would_help_is_said(self, machine):
        machine(memory=8, disk=20)
        with pytest.raises(TooLargeError) as error:
            choose_engine(91_599, dtype="float64")
        said = str(error.value)
        assert said.startswith("91,599 items in float64 are too many: in memory it needs 33 GiB of memory, and 8.0 GiB")
        assert "on disk it needs 63 GiB of disk in " in said
        assert "a machine with 33 GiB of memory" in said
        assert "with a folder that has 63 GiB free" in said
        assert "dtype='float32'" not in said, "it needs 32 GiB of disk"

    def test_a_smaller_type_is_named_if_it_would_do(self, machine):
        machine(memory=8, disk=40)
        with pytest.raises(TooLargeError, match="What would fit: dtype='float32', or engine='disk' with a folder"):
            choose_engine(91_599, dtype="float64")

    def test_another_engine_is_named_if_it_would_do(self, machine):
        machine(memory=8, devices=(70,))
        with pytest.raises(TooLargeError, match=r"for the memory engine: .* What would fit: engine='disk' with 32 GiB"):
            choose_engine(91_599, engine="memory")

    def test_a_device_helps_where_memory_holds_the_result(self, machine):
        machine(memory=17.5, disk=1)
        with pytest.raises(TooLargeError) as error:
            choose_engine(91_599, engine="disk")
        assert "engine='torch' on a device with 21 GiB free" in str(error.value)
        machine(memory=8, disk=1)
        with pytest.raises(TooLargeError) as error:
            choose_engine(91_599)
        assert "torch" not in str(error.value)

    def test_fewer_items_would_fit_and_so_many_do(self, machine):
        machine(memory=0.5, disk=0)
        with pytest.raises(TooLargeError) as error:
            choose_engine(30_000)
        fewer = int(str(error.value).rsplit(", or ", 1)[1].removesuffix(" items").replace(",", ""))
        assert choose_engine(fewer).name == "memory"
        with pytest.raises(TooLargeError):
            choose_engine(fewer + 1)

    def test_the_least_popular_items_that_must_go_are_told_by_their_users(self, machine):
        """Item i has i // 100 + 1 users; of 9,000 items, the advised minimum keeps as many as can be."""
        users = np.arange(9000) // 100 + 1
        rows = np.concatenate([np.arange(count) for count in users])
        matrix = csr_array((np.ones(len(rows), np.float32), (rows, np.repeat(np.arange(9000), users))))
        machine(memory=0.2, disk=0)
        with pytest.raises(TooLargeError) as error:
            choose_engine(matrix)
        kept, least = (int(word.replace(",", "")) for word in _numbers(str(error.value).rsplit(", or ", 1)[1]))
        assert kept == (users >= least).sum()
        smaller = deql.clean(deql.Interactions.from_csr(matrix), min_users_per_item=least)
        assert smaller.n_items == kept
        assert choose_engine(smaller.matrix).name == "memory"
        with pytest.raises(TooLargeError):
            choose_engine(matrix[:, users >= least - 1])

    def test_a_folder_in_memory_is_no_disk(self, machine):
        machine(memory=8, on_disk=False)
        with pytest.raises(TooLargeError, match=r"on disk .* lies in memory itself: name a folder on a disk"):
            choose_engine(91_599)
        with pytest.raises(ParameterError, match="engine='disk' cannot be used"):
            choose_engine(91_599, engine="disk")
        assert choose_engine(5000, engine="disk").name == "disk", "memory has room for the files too"

    def test_a_folder_that_may_not_be_written_to(self, machine):
        machine(memory=8, writable=False)
        with pytest.raises(ParameterError, match="may not be written to: name another folder"):
            choose_engine(5000, engine="disk")

    def test_a_budget_that_is_too_small(self, machine):
        machine()
        with pytest.raises(ParameterError, match=r"it needs memory of at least .* MiB, and was given 50 MiB") as error:
            choose_engine(20_108, engine=Disk("50MiB"))
        least = _numbers(str(error.value))[0]
        assert choose_engine(20_108, engine=Disk(f"{least}MiB")).name == "disk"
        with pytest.raises(ParameterError):
            choose_engine(20_108, engine=Disk(f"{int(least) - 1}MiB"))

    def test_torch_is_missing(self, machine):
        machine()
        with pytest.raises(ParameterError, match=r'torch is not installed: pip install "deql\[gpu\]"'):
            choose_engine(5000, engine="torch")


def _numbers(text):
    return re.findall(r"\d[\d,]*", text)


class TestPlan:
    def test_memory_is_the_matrix_two_panels_and_the_rest(self, machine):
        machine()
        found = deql.plan(38_048, calibrate=False)
        n, tile = 38_048, 1024
        packed = sum((n - start) * min(tile, n - start) for start in range(0, n, tile)) * 4
        assert found.tile == tile
        assert found.memory == packed + 2 * n * tile * 4 + (248 + 5 * thread_count()) * 2**20
        assert found.memory < 4 * GIB, "what is promised for Yelp2018"
        assert deql.plan(91_599, calibrate=False).memory < 20 * GIB
        assert (found.disk, found.seconds) == (0, None)

    @pytest.mark.parametrize("engine", ["memory", "disk", "torch"])
    def test_a_prior_takes_its_factors(self, machine, engine):
        machine(memory=64, devices=(80,))
        plain, thin, whole = (deql.plan(20_000, engine=engine, calibrate=False, prior_rank=k) for k in (0, 512, 20_000))
        assert thin.memory - plain.memory == 3 * 20_000 * 512 * 4
        assert whole.memory - plain.memory == 2 * 20_000**2 * 4
        with pytest.raises(ParameterError, match=r"^prior_rank must be a whole number from 0 up"):
            deql.plan(20_000, prior_rank=-1)

    def test_interactions_splits_and_matrices_are_alike(self, machine, random_matrix):
        machine()
        data = deql.Interactions.from_csr(random_matrix(60, 40))
        found = [deql.plan(one, calibrate=False) for one in (data, data.matrix, data.matrix.tocsc())]
        assert len({plan.memory for plan in found}) == 1
        split = deql.split_strong(data)
        assert deql.plan(split, calibrate=False).memory == deql.plan(split.train, calibrate=False).memory
        assert found[0].memory > deql.plan(40, calibrate=False).memory, "the interactions themselves"

    def test_a_table_for_people_and_plain_values_for_machines(self, machine):
        machine(memory=8, devices=(70,))
        found = deql.plan(91_599, engine="disk", calibrate=False)
        lines = str(found).splitlines()
        taken = f"{show_bytes(found.memory)} of memory, 32 GiB of disk."
        assert lines[0] == f"91,599 items in float32 would be fitted by the disk engine: {taken}"
        assert [line.split()[0] for line in lines[2:6]] == ["engine", "torch", "memory", "disk"]
        assert "it needs 17 GiB of memory, and 8.0 GiB are free" in lines[4]
        assert lines[-1].startswith("Free: 8.0 GiB of memory, 500 GiB of disk in /")
        assert lines[-1].endswith(", 70 GiB on cuda:0 (made up).")
        facts = json.loads(json.dumps(as_json(found.to_dict())))
        assert (facts["engine"], facts["n"], facts["memory"]) == ("disk", 91_599, found.memory)
        assert [one["engine"] for one in facts["engines"] if one["why_not"] is None] == ["disk"]
        assert facts["free"]["devices"][0]["free"] == 70 * GIB

    def test_this_machine_is_measured_in_about_a_second(self, tmp_path):
        found = deql.plan(20_000, folder=tmp_path)
        assert found.seconds > 0
        assert not list(tmp_path.iterdir())

    def test_a_device_that_cannot_hold_the_matrix_gets_it_in_wide_passes(self, machine):
        machine(devices=(10,))
        chosen = deql.plan(91_599, calibrate=False).chosen
        assert (chosen.engine, chosen.passes) == ("torch", 45), "of two blocks of 1,024 columns"
        assert chosen.device_memory <= 10 * GIB
        assert "streams from memory" in str(deql.plan(91_599, calibrate=False))

    def test_no_measurement_of_what_does_not_fit(self, machine, monkeypatch):
        machine(memory=8)
        monkeypatch.setattr(calibration, "product_rate", lambda dtype, tile: 2e11)
        monkeypatch.setattr(calibration, "disk_rates", lambda folder: (1e9, 1e9))
        seconds = {need.engine: need.seconds for need in deql.plan(91_599).needs}
        assert (seconds["memory"], seconds["torch"]) == (None, None)
        assert seconds["disk"] == pytest.approx(91_599**3 * 1.15 / 2e11, rel=0.05)


class TestPrediction:
    size = ProblemSize(38_048, "float32")

    def test_five_minutes_for_yelp_on_two_cores(self):
        assert 280 < predict(Requirement("memory", 0), self.size, {"products": 2e11}) < 340

    def test_a_slow_disk_sets_the_pace(self):
        rates = {"products": 2e11, "write": 2e9, "read": 2e9}
        quick = predict(Requirement("disk", 0, passes=19), self.size, rates)
        assert quick < 340
        slow = predict(Requirement("disk", 0, passes=19), self.size, rates | {"write": 1e7})
        assert slow > 10 * quick
        assert slow > 2 * predict(Requirement("disk", 0, passes=5), self.size, rates | {"write": 1e7})

    def test_a_device_that_streams_waits_for_the_copies(self):
        rates = {"device": 5e13, "copy": 2e10}
        whole = predict(Requirement("torch", 0), self.size, rates)
        assert whole < 2
        assert predict(Requirement("torch", 0, passes=38), self.size, rates) > 2 * whole

    def test_the_gram_matrix_counts(self, random_matrix):
        matrix = random_matrix(50, 30)
        size = ProblemSize(30, "float32", matrix)
        assert size.pairs == sum(int(size) ** 2 for size in (matrix.toarray() != 0).sum(axis=1))
        assert predict(Requirement("memory", 0), size, {"products": 2e11}) > predict(
            Requirement("memory", 0), ProblemSize(30, "float32"), {"products": 2e11}
        )

    def test_a_device_is_measured(self):
        pytest.importorskip("torch")
        assert min(device_rates("cpu", "float64")) > 0

    def test_the_disk_is_written_and_read_and_left_as_it_was(self, tmp_path):
        write, read = disk_rates(tmp_path, size=2**16)
        assert min(write, read) > 0
        assert not list(tmp_path.iterdir())


class TestResources:
    def test_this_machine(self, tmp_path):
        there = resources.find_resources(tmp_path / "not" / "there", devices=False)
        assert there.memory > 0
        assert there.disk > 0
        assert there.devices == ()
        assert there.folder == tmp_path

    def test_tiles_that_are_there_already_have_their_room(self, tmp_path, monkeypatch):
        usage = types.SimpleNamespace(free=1000)
        monkeypatch.setattr(resources.shutil, "disk_usage", lambda path: usage)
        (tmp_path / "tiles").write_bytes(bytes(range(256)) * 4096)
        assert resources.find_resources(tmp_path, devices=False).disk >= 1000 + 2**20
        assert resources.find_resources(tmp_path / "other", devices=False).disk == 1000

    def test_devices_are_those_of_torch(self, monkeypatch):
        torch = pytest.importorskip("torch")
        made_up = {
            "is_available": lambda: True,
            "current_device": lambda: 1,
            "get_device_name": lambda name: "made up",
            "mem_get_info": lambda name: (5, 10) if name == "cuda:0" else (7, 10),
            "memory_reserved": lambda name: 3,  # of which torch would use two bytes again
            "memory_allocated": lambda name: 1,
        }
        for name, function in made_up.items():
            monkeypatch.setattr(torch.cuda, name, function)
        monkeypatch.setattr(resources.os.path, "exists", lambda path: path == "/dev/nvidiactl")
        assert resources.cuda_device() == resources.cuda_device("cuda") == (Device("cuda:1", "made up", 9, 10),)
        assert resources.cuda_device("cuda:0") == (Device("cuda:0", "made up", 7, 10),)
        assert resources.cuda_device("cpu") == ()

        def broken(name):
            raise RuntimeError("the device is busy")

        monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
        assert resources.cuda_device() == ()
        monkeypatch.setattr(resources.os.path, "exists", lambda path: False)
        monkeypatch.setattr(sys, "platform", "linux")
        assert resources.cuda_device() == ()

    def test_the_budget_is_half_of_what_is_free_and_all_of_it_to_go_on(self, tmp_path, monkeypatch):
        monkeypatch.setattr(disk, "free_memory", lambda: 8 * GIB)
        assert Disk(folder=tmp_path).budget() == 4 * GIB
        (tmp_path / "deql-tiles.json").write_text("{}")
        assert Disk(folder=tmp_path).budget() == 8 * GIB
        assert Disk("1GiB", tmp_path).budget() == GIB


@pytest.mark.parametrize("said", [{"memory": "1GiB"}, {"folder": "tiles"}, {"device": "cuda"}])
def test_what_an_engine_has_is_not_said_twice(said):
    with pytest.raises(ParameterError, match="is said twice") as raised:
        deql.plan(5000, engine=deql.engines.Disk("4GiB"), calibrate=False, **said)
    assert raised.value.parameter == next(iter(said))
