"""The name ``bagua`` for old scripts: it is ``tutti.compat.bagua``."""

from tutti.compat import old_names

old_names.take_over("bagua")
