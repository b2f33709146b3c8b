"""What nvcc made of our kernels: cuda_objects.py CUOBJDUMP OBJECT...

Every object that has kernels must have code for sm_80 and sm_90, and PTX, which newer GPUs compile. In the PTX every
product and sum must say how it is rounded: one that does not may be contracted to a fused multiply-add, whose bits are
not those of the CPU. A fused multiply-add must be one of f32 that a source asks for, where rounding once makes no
difference (PlusExactProduct, QuickLevels). (The machine code has more of them: divisions and roots are made of them.)
"""

import re
import subprocess
import sys

SKIPPED = 77
CONTRACTED = re.compile(r"^\s*(?:@\S+\s+)?(fma\.(?!rn\.f32 )\S+|(?:mul|add|sub)\.(?:ftz\.)?f(?:16|32|64)\b.*)", re.M)
INEXACT = re.compile(r"^\s*(?:@\S+\s+)?((?:div|sqrt|rcp)\.(?:approx|full)\S*|\S+\.ftz\.f32\b.*)", re.M)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def faults_of(listing, ptx):
    """What is wrong with an object: `listing` is what cuobjdump lists, `ptx` its PTX."""
    faults = []
    for architecture in ("sm_80", "sm_90"):
        if not re.search(rf"ELF file.*\.{architecture}\.", listing):
            faults.append(f"has no code for {architecture}")
    if not re.search(r"PTX file", listing):
        faults.append("has no PTX")
    for pattern, what in ((CONTRACTED, "may be contracted"), (INEXACT, "is not rounded as IEEE 754 says")):
        found = pattern.search(ptx)
        if found:
            faults.append(f"has an operation that {what}: {found.group(1)}")
    return faults


def check_the_check():
    good = "ELF file 1: a.1.sm_80.cubin\nELF file 2: a.2.sm_90.cubin\nPTX file 1: a.1.sm_90.ptx\n"
    assert faults_of(good, "  mul.rn.f32 %f1, %f2, %f3;\n  add.s32 %r1, %r2, 4;\n  div.rn.f64 %fd1, %fd2, %fd3;") == []
    assert len(faults_of("", "")) == 3
    for bad in ("fma.rn.f64 %fd1, %fd2, %fd3, %fd4;", "@%p1 add.f32 %f1, %f2, %f3;", "mul.f64 %fd1, %fd2, %fd3;",
                "div.approx.f32 %f1, %f2, %f3;", "add.rn.ftz.f32 %f1, %f2, %f3;"):
        assert len(faults_of(good, f"  {bad}\n")) == 1, bad


def main(cuobjdump, objects):
    check_the_check()
    with_kernels = 0
    failed = False
    for path in objects:
        if "Fatbin" not in output(cuobjdump, path):
            continue
        ptx = output(cuobjdump, "-ptx", path)
        if ".entry" not in ptx:
            continue  # a source that launches nothing by itself
        with_kernels += 1
        for fault in faults_of(output(cuobjdump, "-lelf", "-lptx", path), ptx):
            print(f"{path}: {fault}")
            failed = True
    print(f"{with_kernels} object(s) with kernels")
    return 1 if failed or with_kernels == 0 else 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].endswith("NOTFOUND"):
        print("cuobjdump is not installed: it is part of the CUDA toolkit")
        sys.exit(SKIPPED)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
