"""Old scripts run as they are: the names and launchers of Bagua and Horovod, and the arguments of old Lightnings.

    python -m tutti.compat train.py
    python -m tutti.compat horovodrun -np 4 python train.py

docs/old_names.md has tables of what is accepted. A program may call ``tutti.compat.activate()`` instead, before it
imports an old name. Importing this package changes nothing, and imports neither torch nor Lightning.
"""

import importlib.util
import os

from tutti.compat import child_processes, old_names

__all__ = ["activate"]

VARIABLE = "TUTTI_COMPAT"  # 1 in the environment of a process that is active, and of its children


def activate() -> None:
    """Makes the old names importable in this process, in the processes that Lightning starts, and in spawned ones.

    A second call changes nothing. ImportError names a real Bagua or Horovod that is installed.
    """
    if old_names.are_importable():
        return
    old_names.make_importable()
    child_processes.activate_in_children()
    os.environ[VARIABLE] = "1"
    import tutti.lightning  # waits until the program imports a Lightning

    if any(map(importlib.util.find_spec, ("lightning", "pytorch_lightning"))):
        from tutti.compat import lightning1

        lightning1.activate()
