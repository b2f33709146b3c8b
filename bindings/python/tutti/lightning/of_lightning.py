"""The strategies for ``import lightning``."""

from tutti.lightning import _classes

_classes.define(globals(), "lightning.pytorch", "lightning.fabric")
