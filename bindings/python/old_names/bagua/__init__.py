"""The name ``bagua`` for old scripts: it is ``tutti.compat.bagua``."""

import tutti_old_names

tutti_old_names.take_over("bagua")
