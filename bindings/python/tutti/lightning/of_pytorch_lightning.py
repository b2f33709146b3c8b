"""The strategies for ``import pytorch_lightning``."""

from tutti.lightning import _classes

_classes.define(globals(), "pytorch_lightning", "lightning_fabric")
