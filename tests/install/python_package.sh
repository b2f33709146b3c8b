# How the Python package is installed from Tutti's sources, for the pages and for tests/python/matrix/install_test.py.
# [install]
.ci/install core                  # compilers and libraries (Debian 12, Ubuntu 24.04)
python3 -m venv ~/tutti-env       # Debian's and Ubuntu's own Python takes no packages of pip
. ~/tutti-env/bin/activate
pip install torch                 # 2.11 or newer
pip install .                     # builds against that torch, in about 10 minutes on 2 cores
# [install]
