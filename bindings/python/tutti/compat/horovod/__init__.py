"""What old scripts import as ``horovod``."""
