"""What old scripts import as ``bagua.distributed``."""
