"""Control groups of both versions, as made-up trees: what they leave is worked out by hand."""

import resource

import pytest

from deql._system.machine import free_memory, processor_quota, resident_file_system

GIB = 2**30
MEMINFO = f"MemTotal: {64 * 2**20} kB\nMemFree: 1 kB\nMemAvailable: {32 * 2**20} kB\n"
V2 = "29 23 0:26 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)


@pytest.fixture
def tree(tmp_path):
    def make(files):
        for name, text in ({"proc/meminfo": MEMINFO} | files).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def v2(group, limits, root="/"):
    """Files of version 2; limits by folder below the mount."""
    files = {"proc/self/cgroup": f"0::{group}\n", "proc/self/mountinfo": V2.format(root=root)}
    return files | {f"sys/fs/cgroup/{name}": f"{text}\n" for name, text in limits.items()}


def test_without_control_groups_what_the_system_has_available_is_free(tree):
    assert free_memory(tree({})) == 32 * GIB
    assert processor_quota(tree({})) is None


def test_the_tightest_of_nested_groups_counts(tree):
    root = tree(
        v2(
            "/pod/job",
            {
                "pod/job/memory.max": "max",
                "pod/job/memory.current": str(9 * GIB),
                "pod/memory.max": str(12 * GIB),
                "pod/memory.current": str(10 * GIB),
                "pod/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file {3 * GIB}",
                "pod/job/cpu.max": "max 100000",
                "pod/cpu.max": "250000 100000",
                "cpu.max": "800000 100000",
            },
        )
    )
    assert free_memory(root) == 3 * GIB, "12 − 10, and 1 of file cache that is given back"
    assert processor_quota(root) == 3, "two and a half, rounded up"


def test_the_soft_limit_of_version_2_counts_too(tree):
    files = {"a/memory.max": str(8 * GIB), "a/memory.high": str(6 * GIB), "a/memory.current": str(GIB)}
    assert free_memory(tree(v2("/a", files))) == 5 * GIB


@pytest.mark.parametrize("group", ["/docker/abc", "/", "/../other"])
def test_in_a_container_the_mount_is_the_group_itself(tree, group):
    files = {"memory.max": str(4 * GIB), "memory.current": str(GIB), "cpu.max": "50000 100000"}
    root = tree(v2(group, files, root="/docker/abc" if group == "/docker/abc" else "/"))
    assert free_memory(root) == 3 * GIB
    assert processor_quota(root) == 1


def test_version_1(tree):
    memory, cpu = "sys/fs/cgroup/memory/jobs", "sys/fs/cgroup/cpu,cpuacct/jobs"
    root = tree(
        {
            "proc/self/cgroup": "12:cpu,cpuacct:/jobs/one\n4:memory:/jobs/one\n1:name=systemd:/x\n0::/\n",
            "proc/self/mountinfo": V1.format(root="/"),
            f"{memory}/one/memory.limit_in_bytes": "9223372036854771712\n",
            f"{memory}/one/memory.usage_in_bytes": f"{GIB}\n",
            f"{memory}/memory.limit_in_bytes": f"{10 * GIB}\n",
            f"{memory}/memory.usage_in_bytes": f"{4 * GIB}\n",
            f"{memory}/memory.stat": f"inactive_file 7\ntotal_inactive_file {2 * GIB}\n",
            f"{cpu}/one/cpu.cfs_quota_us": "-1\n",
            f"{cpu}/one/cpu.cfs_period_us": "100000\n",
            f"{cpu}/cpu.cfs_quota_us": "400000\n",
            f"{cpu}/cpu.cfs_period_us": "100000\n",
        }
    )
    assert free_memory(root) == 8 * GIB
    assert processor_quota(root) == 4


def test_a_group_of_version_1_above_what_is_mounted_is_known_from_its_statistics(tree):
    files = {
        "proc/self/cgroup": "4:memory:/kubepods/pod1/c1\n",
        "proc/self/mountinfo": V1.format(root="/kubepods/pod1/c1"),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {2 * GIB}\n",
    }
    assert free_memory(tree(files)) == GIB


def test_a_group_that_has_more_than_it_may_leaves_nothing(tree):
    assert free_memory(tree(v2("/a", {"a/memory.max": str(GIB), "a/memory.current": str(2 * GIB)}))) == 0


def test_the_limit_on_addresses_counts(tree, monkeypatch):
    root = tree({"proc/self/statm": "1000 500 100 1 0 300 0\n"})
    monkeypatch.setattr(resource, "getrlimit", lambda which: (5 * GIB, -1))
    assert free_memory(root) == 5 * GIB - 1000 * resource.getpagesize()


def test_a_folder_in_memory_is_told_from_one_on_a_disk(tree, tmp_path):
    mounts = f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / {tmp_path}/ram rw - tmpfs none rw\n"
    mounts += f"3 2 254:1 / {tmp_path}/ram/disk rw - xfs /dev/vdb rw\n"
    root = tree({"proc/self/mountinfo": mounts})
    found = [resident_file_system(tmp_path / name, root) for name in (".", "ram", "ram/sub/deep", "ram/disk", "ramp")]
    assert found == [False, True, True, False, False]
