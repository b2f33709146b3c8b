"""``python -m tutti --cmake-dir`` or ``--version``, for build scripts."""

import argparse

import tutti


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tutti", description="Facts about this installation of Tutti.")
    parser.add_argument("--version", action="version", version=tutti.__version__)
    parser.add_argument("--cmake-dir", action="store_true", help="print the folder for CMake's -Dtutti_DIR=")
    if not parser.parse_args().cmake_dir:
        parser.error("expected --version or --cmake-dir")
    try:
        print(tutti.cmake_dir())
    except RuntimeError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
