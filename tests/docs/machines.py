"""Machines for the recipes of docs/several_machines.md: network namespaces with host names, home directories and ssh."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/hosts"))
from links import UNSHAPED, Hosts, reason_for_no_hosts

LIMIT_S = 180
# Runs the rest of its words on a machine: with its name, its /etc/hosts and its home directory.
ENTER = 'hostname "$0" && mount --bind "$1/hosts" /etc/hosts && cd "$1/home/$0" && shift && exec "$@"'
# ssh gives a command the environment of the other machine, not that of the caller.
SSH = """#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1; shift
case $host in
{cases}
*) echo "ssh: no machine $host" >&2; exit 255 ;;
esac
"""
SCP = """#!/bin/sh
[ "$1" = -p ] && shift
exec cp -p "$1" "{folder}/home/${{2%:}}/"
"""


class Machines(Hosts):
    """Two machines, node1 and node2, whose interfaces have different names."""

    NAMES = ("node1", "node2")

    def __init__(self, folder, programs):
        """`programs`: the folders where commands are looked for before those of the system."""
        super().__init__(len(self.NAMES), UNSHAPED)
        self.folder = pathlib.Path(folder)
        self.programs = programs

    def device(self, host):
        return ["eth0", "ens5"][host]

    def variables(self, name):
        """The environment of a user of the machine."""
        home = self.folder / "home" / name
        return {"PATH": ":".join(map(str, [self.folder / "bin", *self.programs, os.environ["PATH"]])), "HOME": str(home),
                "XDG_RUNTIME_DIR": str(home / "run"), "TMPDIR": str(home / "tmp"), "OMP_NUM_THREADS": "1",
                "TUTTI_TIMEOUT": "60", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}

    def enter(self, name, command):
        """The command line that runs `command` on the machine."""
        inside = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, name, str(self.folder), *command]
        return super().command(self.NAMES.index(name), inside)

    def start(self, name, script, **more):
        return subprocess.Popen(self.enter(name, ["sh", "-euc", script]), env=self.variables(name) | more, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, scripts, **more):
        """Runs {name: script} at the same time; returns {name: (status, output, errors)}."""
        running = {name: self.start(name, script, **more) for name, script in scripts.items()}
        try:
            ended = {name: process.communicate(timeout=LIMIT_S) for name, process in running.items()}
        finally:
            for process in running.values():
                process.kill()
        return {name: (running[name].returncode, *texts) for name, texts in ended.items()}

    def __enter__(self):
        for name in self.NAMES:
            for folder in "run", "tmp":
                (self.folder / "home" / name / folder).mkdir(parents=True, mode=0o700)
        lines = ["127.0.0.1 localhost", *(f"{self.address(i)} {name}" for i, name in enumerate(self.NAMES))]
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")
        super().__enter__()
        cases = []
        for name in self.NAMES:
            assignments = [f"{variable}={value}" for variable, value in self.variables(name).items()]
            words = ["env", "-i", *assignments, *self.enter(name, ["sh", "-c"])]
            cases.append(f"{name}) exec {shlex.join(words)} \"$*\" ;;")
        self.add_command("ssh", SSH.format(cases="\n".join(cases)))
        self.add_command("scp", SCP.format(folder=self.folder))
        return self

    def add_command(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def call(self, name, program):
        """Makes `name` a command for `program`, which is looked for on this machine; False where it is not installed."""
        found = shutil.which(program)
        if found:
            self.add_command(name, f"#!/bin/sh\nexec {found} \"$@\"\n")
        return found is not None
