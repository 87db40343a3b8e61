"""Kernels of the host processor: loop IR to LLVM IR to object code, called with numpy arrays.

`emitter` writes the IR, `objects` compiles and keeps it, `host` holds the kernel, `arguments`
checks what it is called with. `memory` holds the primitives of the simulator's engines.
"""
