#!/usr/bin/env python3
"""The bundle, rehearsed as far as a machine without a GPU allows: bundle_test.py BUILD_DIRECTORY FOLDER [PYTHON]

The real bundle runs with all GPUs hidden. Then programs that say what a GPU's would say take the place of the real ones.
PYTHON has the torch that the bundle's Python package is for.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import page as results_page

HERE = pathlib.Path(__file__).resolve().parent
BUILD, FOLDER = pathlib.Path(), pathlib.Path()
OF_TORCH = []  # the folder with the Python that has torch

RANKS = """case "$*" in
  list) printf 'good 1,2 60 It passes.\\nbad 2 60 It fails.\\nslow 1 1 It hangs.\\n' ;;
  info) printf 'cuda_runtime: 13.0\\ncuda_driver: 13.1\\ngpu: NVIDIA Test\\nnccl: 2.28.9\\n' ;;
  bad*) echo wrong bits; exit 1 ;;
  slow*) sleep 1000 ;;
esac
"""
KERNELS = """echo '1048576 elements, messages of 8 ranks'
echo 'bf16: encode                                       10.0 us      600 GB/s    80 % of the copy'
"""
BENCH = """case "$*" in
  'host_time 1') echo '    figure: host_time_tutti_1 = 4.20 us (9 of 10 within 5.00)' ;;
  'steps unshaped') printf '    figure: step_fp32_unshaped = 30.00 ms\\n    figure: step_bytegrad_unshaped = 10.00 ms\\n' ;;
  steps*) exit 1 ;;
esac
"""


def run(command, **variables):
    return subprocess.run([str(part) for part in command], env={**os.environ, **variables}, capture_output=True, text=True)


def results_of(folder, kind):
    return json.loads((folder / f"{kind}.json").read_text())


class BundleTest(unittest.TestCase):
    def setUp(self):
        self.results = pathlib.Path(tempfile.mkdtemp(prefix="tutti_gpu_results_"))
        self.addCleanup(shutil.rmtree, self.results)
        # Tools of CUDA that this machine may have are not to be used.
        self.tools = self.results / "tools"
        self.tools.mkdir()
        self.with_tool("nvidia-cuda-mps-control", "exit 1\n")
        self.with_tool("compute-sanitizer", "exit 0\n")

    def with_tool(self, name, text):
        """Lets a tool of CUDA be this shell script."""
        (self.tools / name).write_text("#!/bin/sh\n" + text)
        (self.tools / name).chmod(0o755)

    def run_entry(self, *entry):
        return run([*entry, "--results", self.results], CUDA_VISIBLE_DEVICES="",
                   PATH=":".join([str(self.tools), *OF_TORCH, os.environ["PATH"]]))

    def with_programs(self, **programs):
        """A bundle whose programs are these shell scripts."""
        bundle = self.results / "bundle"
        shutil.copytree(FOLDER, bundle, ignore=shutil.ignore_patterns(
            "libraries", "cxx", "gpu_ranks", "gpu_kernels", "python", "torch"))
        for name, text in programs.items():
            (bundle / "bin" / name).write_text("#!/bin/sh\n" + text)
            (bundle / "bin" / name).chmod(0o755)
        return bundle

    def test_without_a_gpu_what_needs_none_passes(self):
        for kind in ("suite", "bench"):
            done = self.run_entry(FOLDER / f"gpu_{kind}")
            self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
            results = results_of(self.results, kind)
            self.assertFalse(results["has_gpu"])
            self.assertEqual(results["figures"], {})
            statuses = {leg["name"]: leg["status"] for leg in results["legs"]}
            self.assertEqual(statuses.pop("gpu"), "skipped")
            if kind == "suite" and (FOLDER / "torch").exists():
                self.assertEqual(statuses.pop("cpu/torch"), "passed" if OF_TORCH else "skipped")
            self.assertEqual(set(statuses.values()), {"passed"})
            self.assertIn("no GPU", (self.results / f"{kind}.txt").read_text())
        page = self.results / "gpu.md"
        done = run([sys.executable, HERE / "page.py", self.results / "suite.json", self.results / "bench.json", page])
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse(page.exists())

    @unittest.skipUnless(shutil.which("tc"), "there is no tc")
    def test_a_link_is_a_loopback_of_twice_its_speed(self):
        done = run([sys.executable, FOLDER / "shaped.py", "1gbit", "tc", "qdisc", "show", "dev", "lo"])
        if done.returncode != 0:
            self.assertIn("shaped.py: ", done.stderr)
            self.skipTest(done.stderr.strip())
        self.assertRegex(done.stdout, r"qdisc tbf .* rate 2Gbit ")

    def test_ranks_share_the_gpu_by_mps_where_it_is(self):
        bundle = self.with_programs(gpu_ranks=RANKS, gpu_kernels=KERNELS, gpu_bench=BENCH)
        log = self.results / "mps"
        self.with_tool("nvidia-cuda-mps-control", f"if [ $# = 1 ]; then echo begin; else cat; fi >> {log}\n")
        self.run_entry(bundle / "gpu_bench")
        figures = results_of(self.results, "bench")["figures"]
        self.assertEqual(figures["step_fp32_unshaped by MPS"], figures["step_fp32_unshaped"])
        self.assertEqual(log.read_text().split(), ["begin", "quit"])

    def test_what_fails_or_hangs_on_a_gpu_is_told(self):
        bundle = self.with_programs(gpu_ranks=RANKS, gpu_kernels=KERNELS, gpu_bench=BENCH)
        # The hanging program is killed when the suite's time is over: after 6 s.
        done = self.run_entry(bundle / "gpu_suite", "--minutes", "0.27")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        results = results_of(self.results, "suite")
        legs = {leg["name"]: leg for leg in results["legs"]}
        self.assertEqual(legs["ranks/good, 1"]["status"], "passed")
        self.assertEqual(legs["ranks/slow, 1"]["status"], "not run")
        self.assertEqual(legs["ranks/bad, 2"]["status"], "not run", "no time is left")
        done = self.run_entry(bundle / "gpu_bench")
        self.assertEqual(done.returncode, 1 if "FAILED" in done.stdout else 0, done.stdout + done.stderr)
        self.assertEqual(results_of(self.results, "bench")["figures"]["host_time_tutti_1"]["value"], 4.2)
        page = self.results / "gpu.md"
        subprocess.run([sys.executable, HERE / "page.py", self.results / "suite.json", self.results / "bench.json", page],
                       check=True)
        text = page.read_text()
        for part in ("NVIDIA Test", "CUDA 13.1", "| ranks/good, 1 | passed |", "| bf16: encode | 600 GB/s, 80 % |",
                     "| Tutti's `AllReduce` | 4.2 us | not measured |", "| unshaped | 30 ms | not measured | 10 ms | 3.00 |"):
            self.assertIn(part, text)

    def test_the_page_has_every_way_of_calling(self):
        printed = run([BUILD / "bin" / "gpu_bench", "--fake", "host_time", "1"]).stdout
        names = re.findall(r"figure: (host_time_\w+_1) =", printed)
        self.assertIn("host_time_nccl_alone_1", names)
        rows = results_page.host_time({name: {"value": 7, "unit": "us"} for name in names})
        self.assertEqual(sum("| 7 us |" in row for row in rows), len(names), rows)

    def test_the_page_compares_calls_in_the_same_circumstances(self):
        times = {"tutti": 13.29, "tutti_and_wait_on_stream": 18.77, "nccl": 10.48, "nccl_and_two_events": 12.36}
        figures = {f"host_time_{name}_2": {"value": value, "unit": "us"} for name, value in times.items()}
        added = [row for row in results_page.host_time(figures) if row.startswith("- ")]
        self.assertEqual(added, ["- 2.8 us: a bare call", "- 6.4 us: a call for which other streams wait, on either side"])

    def test_a_wrong_check_fails_the_suite(self):
        bundle = self.with_programs(gpu_ranks=RANKS.replace("slow 1 1 It hangs.\\n", ""), gpu_kernels="")
        done = self.run_entry(bundle / "gpu_suite")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        legs = {leg["name"]: leg for leg in results_of(self.results, "suite")["legs"]}
        self.assertEqual(legs["ranks/bad, 2"]["status"], "FAILED")
        self.assertEqual(legs["ranks/bad, 2"]["tail"], ["wrong bits"])
        self.assertEqual(legs["ranks/good, 2"]["status"], "passed")

    def test_the_tests_of_the_python_package_run_where_torch_finds_the_gpu(self):
        bundle = self.with_programs(gpu_ranks=RANKS)
        (bundle / "torch").mkdir()
        for name in ("host", "good", "bad"):
            (bundle / "torch" / f"{name}_test.py").touch()
        suite = (sys.executable, bundle / "gpu_suite", "--only", "torch")
        for found, code, statuses in (("False", 1, {"cpu/torch": "skipped"}),
                                      ("True", 1, {"cpu/torch": "passed", "torch/bad": "FAILED", "torch/good": "passed"})):
            self.with_tool("python3", f"""case "$*" in
  -c*) printf '2.11.0\\nGPU {found}\\n' ;;
  *bad_test.py) echo wrong bits; exit 1 ;;
esac
""")
            done = self.run_entry(*suite)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
            results = results_of(self.results, "suite")
            self.assertEqual({leg["name"]: leg["status"] for leg in results["legs"]}, statuses)
        self.assertEqual(results["machine"]["torch"], "2.11.0")
        self.assertIn("torch/bad ends with\n    wrong bits\n", done.stdout)
        self.with_tool("python3", "printf '2.11.0\\nGPU True\\n'\n")
        self.assertEqual(self.run_entry(*suite).returncode, 0)

    def test_what_compute_sanitizer_finds_fails_the_suite(self):
        ranks = RANKS.replace("bad 2 60 It fails.\\nslow 1 1 It hangs.\\n", "")
        bundle = self.with_programs(gpu_ranks=ranks, gpu_kernels="")
        done = self.run_entry(bundle / "gpu_suite")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.with_tool("compute-sanitizer", "exit 9\n")
        done = self.run_entry(bundle / "gpu_suite")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        legs = {leg["name"]: leg for leg in results_of(self.results, "suite")["legs"]}
        self.assertEqual(legs["optional/memcheck"]["status"], "FAILED")


if __name__ == "__main__":
    BUILD, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    OF_TORCH = [str(pathlib.Path(python).parent) for python in sys.argv[3:]]
    subprocess.run([sys.executable, HERE / "make_bundle.py", BUILD, FOLDER], check=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
