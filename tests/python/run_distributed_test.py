"""Runs the tests of torch.distributed that torch's wheel contains against the backend `tutti`.

    WORLD_SIZE=3 python run_distributed_test.py [-v] [TestTutti.test_all_reduce_sum]

The environment that the tests read: BACKEND (default: tutti), WORLD_SIZE (default: 3), and what is set below.
"""

import atexit
import os
import shutil
import tempfile
import unittest

# Of the first process: torch's tests leave files behind, and the processes that they start take TEMP_DIR as they find it.
SCRATCH = tempfile.mkdtemp(prefix="tutti-distributed-test-") if "TEMP_DIR" not in os.environ else None
if SCRATCH:
    atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)
    os.environ["TEMP_DIR"] = os.environ["TMPDIR"] = tempfile.tempdir = SCRATCH
    for name in ("barrier", "test_dir"):
        os.makedirs(os.path.join(SCRATCH, name))
os.environ.pop("CI", None)  # where CI is set, torch's tests write reports by a package of torch's own CI
os.environ.setdefault("BACKEND", "tutti")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("INIT_METHOD", "env://")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.multiprocessing
from torch.testing._internal import common_distributed

import tutti.torch

if os.environ["BACKEND"] == "gloo":  # the tests that only run under this name
    backend = torch.distributed.Backend
    if hasattr(backend, "_ensure_backend_registered"):
        backend._ensure_backend_registered("gloo")
    backend._plugins["GLOO"] = backend._plugins["TUTTI"]

# The tests ask, while their module is imported, what a backend can do.
for feature in ("ddp", "subgroup", "plugin"):
    common_distributed.DistTestCases.backend_feature[feature].add("tutti")

from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend


class TestTutti(TestDistBackend, DistributedTest._DistTestBase):
    test_ddp_logging_data_cpu = unittest.skip("expects of any plug-in the name 'custom', and the name of the backend")(
        DistributedTest._DistTestBase.test_ddp_logging_data_cpu)

    def setUp(self):
        super().setUp()
        # Forked ranks start at once, where spawned ones import torch first.
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    run_tests()
