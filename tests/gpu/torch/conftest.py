import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import gpus  # noqa: E402, F401  has settings of NCCL, for tests that do not import it, too
