"""Kernels of the host processor: loop IR to LLVM IR to object code, called with numpy arrays."""
