#!/usr/bin/env python3
"""Prints the versions of CUDA's libraries that a program started here would load, and PyTorch's, as a line of JSON. Missing ones are left out.

usage: versions.py [--torch]     (--torch: also import PyTorch, which takes seconds)
"""

import ctypes
import json
import sys

# The names by which muster loads these libraries (kernels/cuda/lt.c, libcomm/device/cuda/nccl.c).
BLASLT = ["libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12"]
CUDNN = ["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"]


def library(names):
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            pass
    return None


def number(names, function, written=False):
    """The result of a function without arguments, or what it writes to its only one; None if it is missing."""
    lib = library(names)
    try:
        call = getattr(lib, function)
    except AttributeError:
        return None
    if not written:
        call.restype = ctypes.c_size_t
        return call() or None
    out = ctypes.c_int(0)
    return out.value if call(ctypes.byref(out)) == 0 and out.value else None


def dotted(n, *powers):
    """12345 by (10000, 100) is 1.23.45."""
    words = []
    for p in powers:
        words.append(str(n // p))
        n %= p
    return ".".join(words + [str(n)])


def of_cuda():
    driver = number(["libcuda.so.1"], "cuDriverGetVersion", True)
    runtime = number(["libcudart.so.13", "libcudart.so.12", "libcudart.so"], "cudaRuntimeGetVersion", True)
    lt = number(BLASLT, "cublasLtGetVersion")
    nccl = number(["libnccl.so.2"], "ncclGetVersion", True)
    cudnn = number(CUDNN, "cudnnGetVersion")
    return {
        "CUDA of the driver": driver and dotted(driver // 10, 100, 1)[:-2],
        "CUDA runtime": runtime and dotted(runtime // 10, 100, 1)[:-2],
        "cuBLASLt": lt and (dotted(lt, 10000, 100) if lt >= 100000 else dotted(lt, 1000, 100)),
        "NCCL": nccl and (dotted(nccl, 10000, 100) if nccl >= 10000 else dotted(nccl, 1000, 100)),
        "cuDNN": cudnn and (dotted(cudnn, 10000, 100) if cudnn >= 90000 else dotted(cudnn, 1000, 100)),
    }


def of_torch():
    import torch
    found = {"PyTorch": torch.__version__, "PyTorch's CUDA": torch.version.cuda}
    try:
        found["PyTorch's cuDNN"] = torch.backends.cudnn.version() and dotted(torch.backends.cudnn.version(), 10000, 100)
        found["PyTorch's NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # a build without CUDA has neither
        pass
    try:
        import triton
        found["Triton"] = triton.__version__
    except ImportError:
        pass
    return found


def main():
    found = of_cuda()
    if "--torch" in sys.argv[1:]:
        try:
            found.update(of_torch())
        except Exception as e:
            found["PyTorch"] = f"does not load: {type(e).__name__}: {e}"[:200]
    print(json.dumps({name: version for name, version in found.items() if version}))


if __name__ == "__main__":
    main()
