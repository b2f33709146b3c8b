"""The commands ``baguarun`` and ``horovodrun``: ranks by torchrun, hosts by ssh."""
