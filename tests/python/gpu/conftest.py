import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import fake_cuda  # noqa: E402

if not fake_cuda.install():
    collect_ignore_glob = ["*_test.py"]  # ctest runs these tests, with the package that is made for them
