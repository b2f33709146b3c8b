"""usage: python -m tutti.compat script.py [arguments]
       python -m tutti.compat -m module [arguments]
       python -m tutti.compat -c command [arguments]
       python -m tutti.compat baguarun --host_list host1:22,host2:22 --nproc_per_node=8 script.py [arguments]
       python -m tutti.compat horovodrun -np 4 [-H host1:2,host2:2] python script.py [arguments]

Runs a script, a module or a command untouched, as python itself would, with the names bagua and horovod and the old
arguments of Lightning. baguarun and horovodrun start ranks; --help after them lists their options.
"""

import importlib
import sys

import tutti.compat
from tutti.compat import bagua_net, main_module

LAUNCHERS = ("baguarun", "horovodrun")
WAYS = {"-m": main_module.run_module, "-c": main_module.run_command}


def main() -> None:
    """Runs what the command line names."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__, end="")
        return
    if not arguments or (arguments[0].startswith("-") and (arguments[0] not in WAYS or len(arguments) < 2)):
        print(f"python -m tutti.compat: expected a script, a launcher, -m module or -c command\n{__doc__}",
              end="", file=sys.stderr)
        sys.exit(2)
    if arguments[0] in LAUNCHERS:
        launcher = importlib.import_module(f"tutti.compat.launch.{arguments[0]}")
        sys.exit(launcher.main(arguments[1:]))
    bagua_net.say_what_does_its_work()
    tutti.compat.activate()
    if arguments[0] in WAYS:
        WAYS[arguments[0]](arguments[1], arguments[2:])
    else:
        main_module.run_script(arguments[0], arguments[1:])


if __name__ == "__main__":
    main()
