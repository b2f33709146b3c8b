"""``python -m tutti.compat -m bagua.distributed.launch [options] script.py [arguments]``: torchrun with more options.

The script runs under ``python -m tutti.compat``. Of Bagua's options those that have no meaning today are accepted, and
a line on stderr says what does their work.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from torch.distributed import run as torchrun
from torch.distributed.elastic.utils import macros

_NO_SERVICE = "Tutti needs no service beside the ranks"
_NO_SAMPLES = "Tutti's tuning has no such setting; TUTTI_AUTOTUNE=1 turns it on"
# Options that have no meaning today, and what does their work.
_NO_EFFECT = {
    "--bagua_service_port": _NO_SERVICE,
    "--default_bucket_size": "bucket_cap_mb of DistributedDataParallel is the size of buckets in MiB",
    "--is_output_autotune_log": _NO_SAMPLES,
    "--autotune_max_samples": _NO_SAMPLES,
    "--autotune_sampling_confidence_time": _NO_SAMPLES,
    "--autotune_warmup_time": _NO_SAMPLES,
    "--report_metrics": "torch.profiler shows each call of Tutti as tutti:all_reduce and so on",
    "--enable_bagua_net": "the backend tutti sends over TCP by itself",
    "--host_list": _NO_SERVICE,
    "--ssh_port": _NO_SERVICE,
}
_WITHOUT_VALUE = ("--is_output_autotune_log", "--report_metrics", "--enable_bagua_net")


def parser() -> argparse.ArgumentParser:
    """torchrun's options and Bagua's."""
    made = torchrun.get_args_parser()
    made.prog = "bagua.distributed.launch"
    made.description = "Starts a script on several ranks: torchrun with the options of Bagua's launcher."
    bagua = made.add_argument_group("options of Bagua's launcher")
    bagua.add_argument("--use_env", "--use-env", action="store_true", default=True,
                       help="as always: LOCAL_RANK is in the environment")
    bagua.add_argument("--set_additional_flag", action="store_true", help="give the script --local_rank=N, too")
    bagua.add_argument("--logdir", metavar="FOLDER", help="write what the ranks print to files in FOLDER")
    bagua.add_argument("--autotune_level", type=int, default=0, metavar="N",
                       help="1: set TUTTI_AUTOTUNE=1, which turns Tutti's tuning on")
    for name, instead in _NO_EFFECT.items():
        action = "store_true" if name in _WITHOUT_VALUE else "store"
        bagua.add_argument(name, action=action, default=argparse.SUPPRESS, help=f"no effect: {instead}")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the launcher on ``arguments`` (None: those of the command line)."""
    options = parser().parse_args(arguments)
    for name, instead in _NO_EFFECT.items():
        if hasattr(options, name.lstrip("-")):
            print(f"bagua.distributed.launch: {name} has no effect: {instead}", file=sys.stderr)
    if options.autotune_level > 0:
        os.environ["TUTTI_AUTOTUNE"] = "1"
    if options.autotune_level > 1:
        print(f"bagua.distributed.launch: --autotune_level {options.autotune_level} is taken as 1, the highest level",
              file=sys.stderr)
    if options.logdir is not None:
        options.log_dir, options.redirects = options.logdir, "3"
    if options.nnodes in ("1", "1:1") and not _names_a_meeting_place(options):
        options.standalone = True  # on a free port, so that two jobs of a machine do not meet
    torchrun.run(_under_compat(options))


def _names_a_meeting_place(options: argparse.Namespace) -> bool:
    defaults = torchrun.get_args_parser()
    names = ("master_addr", "master_port", "rdzv_backend", "rdzv_endpoint")
    return any(getattr(options, name) != defaults.get_default(name) for name in names)


def _under_compat(options: argparse.Namespace) -> argparse.Namespace:
    """Lets the script of ``options`` run under ``python -m tutti.compat``; another program runs as it is."""
    flag = [f"--local_rank={macros.local_rank}"] if options.set_additional_flag else []
    if options.no_python:
        options.training_script_args = [*flag, *options.training_script_args]
        return options
    script = (["-m"] if options.module else []) + [options.training_script]
    options.module, options.training_script = True, "tutti.compat"
    options.training_script_args = [*script, *flag, *options.training_script_args]
    return options


if __name__ == "__main__":
    main()
