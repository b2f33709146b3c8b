"""The name ``horovod`` for old scripts: it is ``tutti.compat.horovod``."""

from tutti.compat import old_names

old_names.take_over("horovod")
