"""The name ``horovod`` for old scripts: it is ``tutti.compat.horovod``."""

import tutti_old_names

tutti_old_names.take_over("horovod")
