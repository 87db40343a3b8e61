"""The instructions of the simulated AI core: operands, pipes, dtypes, meaning. One dictionary.

Printing, checking, timing and the value kernels all read `INSTRUCTIONS`; nothing else knows column
numbers. `TRAITS` is the same knowledge as an integer array for compiled code. Deviations from the
hardware: compares give 0/1 lanes instead of bit masks, LOAD_B keeps fractals k0 x n0 (hardware:
n0 x k0), a transposing load is a flag of the load. Source: notes on the hardware, section 1.6.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from akg_py.records import dataclass

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
PIPE_INDEX = {name: i for i, name in enumerate(PIPES)}

#: memory spaces: number in `space << 40 | byte offset`; tensors in GM are 8 + index
SPACES = {"L1": 1, "L0A": 2, "L0B": 3, "L0C": 4, "UB": 5}
FIRST_TENSOR = 8
MAX_SPACES = 64
SPACE_SHIFT = 40
OFFSET_MASK = (1 << SPACE_SHIFT) - 1

# scalar rows
LOOP, END, MADD, MOD, DIV, MIN, MAX, EQ, NE, LT, LE = range(11)
SCALAR_NAMES = ("LOOP", "END", "MADD", "MOD", "DIV", "MIN", "MAX", "EQ", "NE", "LT", "LE")
FIRST_DEVICE = 16
SET, WAIT = 16, 17
FIRST_INSTRUCTION = 18
MAX_OPERANDS = 12

# families: one formula of regions and cycles each
ND2NZ, LOAD_A, LOAD_B, MMAD, FIX, COPY, VECTOR, REDUCE, BRCB = range(9)

BLOCK_BYTES = 32
RELU, ATOMIC_ADD = 1, 2  # bits of FIX's mode

SHORT_DTYPE = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
    "bool": "u8",
}
DTYPE_BYTES = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "i32": 4,
    "i8": 1,
    "u8": 1,
    "b8": 1,
    "b16": 2,
    "b32": 4,
}


@dataclass(frozen=True, slots=True)
class Operand:
    """Role: dst, src, inout (addresses), size (decides time), stride (bytes), immediate."""

    name: str
    role: str


@dataclass(frozen=True, slots=True)
class InstructionSpec:
    """What one op is.

    Attributes:
        number: value of the table's op column.
        cost: key of the device's table of vector cycles (family name for the others).
        dtypes: of dst, src0, src1; "" where there is none.
    """

    op: str
    number: int
    operands: tuple[Operand, ...]
    pipe: str
    family: int
    cost: str
    dtypes: tuple[str, str, str]
    doc: str
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(o.name for o in self.operands))

    @property
    def addresses(self) -> tuple[int, ...]:
        """Columns that hold addresses."""
        return tuple(i for i, o in enumerate(self.operands) if o.role in ("dst", "src", "inout"))


INSTRUCTIONS: dict[str, InstructionSpec] = {}


def _operands(text: str) -> tuple[Operand, ...]:
    return tuple(Operand(*item.split(":")) for item in text.split())


def _add(
    op: str,
    operands: str,
    pipe: str,
    family: int,
    cost: str,
    dtypes: tuple[str, str, str],
    doc: str,
) -> None:
    number = FIRST_INSTRUCTION + len(INSTRUCTIONS)
    INSTRUCTIONS[op] = InstructionSpec(
        op, number, _operands(operands), pipe, family, cost, dtypes, doc
    )


_VECTOR = (
    "lanes:size repeats:size dst_rep:stride src0_rep:stride src1_rep:stride"
    " dst_blk:stride src0_blk:stride src1_blk:stride"
)
BINARY = {
    "VADD": "a + b",
    "VSUB": "a - b",
    "VMUL": "a * b",
    "VDIV": "a / b",
    "VMAX": "maximum(a, b)",
    "VMIN": "minimum(a, b)",
}
SCALAR = {
    "VADDS": "a + s",
    "VMULS": "a * s",
    "VMAXS": "maximum(a, s)",
    "VMINS": "minimum(a, s)",
    "VDIVS": "a / s",
    "VRSUBS": "s - a",
    "VRDIVS": "s / a",
}
UNARY = {
    "VEXP": "exp(a)",
    "VLN": "ln(a)",
    "VSQRT": "sqrt(a)",
    "VRSQRT": "1 / sqrt(a)",
    "VREC": "1 / a",
    "VFLOOR": "floor(a)",
    "VCEIL": "ceil(a)",
    "VROUND": "round to even(a)",
    "VTRUNC": "trunc(a)",
    "VABS": "abs(a)",
    "VNEG": "-a",
    "VRELU": "maximum(a, 0)",
    "VCOPY": "a",
}
COMPARE = {
    "VCMPLT": "<",
    "VCMPLE": "<=",
    "VCMPGT": ">",
    "VCMPGE": ">=",
    "VCMPEQ": "==",
    "VCMPNE": "!=",
}
CROSS = {"VCADD": "sum", "VCMAX": "maximum", "VCMIN": "minimum"}
FLOAT_ONLY = frozenset(
    {
        "VDIV",
        "VDIVS",
        "VRDIVS",
        "VEXP",
        "VLN",
        "VSQRT",
        "VRSQRT",
        "VREC",
        "VFLOOR",
        "VCEIL",
        "VROUND",
        "VTRUNC",
    }
)
VECTOR_DTYPES = ("f32", "f16", "i32")
CONVERTIBLE = ("f16", "bf16", "f32", "i32", "i8", "u8")


def _build() -> None:
    for es in ("b8", "b16", "b32"):
        _add(
            f"ND2NZ_{es}",
            "dst:dst src:src rows:size cols:size src_pitch:size dst_col_stride:stride",
            "MTE2",
            ND2NZ,
            "ND2NZ",
            (es, es, ""),
            "rows x cols elements of GM into 32 B wide columns in L1; padding is not written",
        )
        _add(
            f"LOAD_A_{es}",
            "dst:dst src:src m:size k:size src_col_stride:stride transposed:immediate",
            "MTE1",
            LOAD_A,
            "LOAD_A",
            (es, es, ""),
            "NZ tile in L1 to fractals (m1, k1) of m0 x k0; transposed: the tile is [k, m]",
        )
        _add(
            f"LOAD_B_{es}",
            "dst:dst src:src k:size n:size src_col_stride:stride transposed:immediate",
            "MTE1",
            LOAD_B,
            "LOAD_B",
            (es, es, ""),
            "NZ tile in L1 to fractals (k1, n1) of k0 x n0; transposed: the tile is [n, k]",
        )
    for dtype in ("f16", "bf16", "f32", "i8"):
        _add(
            f"MMAD_{dtype}",
            "c:inout a:src b:src m:size n:size k:size init:immediate c_col_stride:stride",
            "M",
            MMAD,
            "MMAD",
            ("i32" if dtype == "i8" else "f32", dtype, dtype),
            "C = (0 if init else C) + A B, fused multiply-adds in k order; int8 wraps in int32",
        )
    for dtype in ("f32", "f16", "bf16", "i32"):
        _add(
            f"FIX_{dtype}",
            "dst:dst src:src m:size n:size dst_pitch:stride src_col_stride:stride mode:immediate",
            "FIX",
            FIX,
            "FIX",
            (dtype, "i32" if dtype == "i32" else "f32", ""),
            "L0C to GM, converted; mode: 1 relu, 2 add to what is there",
        )
    _add(
        "COPY",
        "dst:dst src:src rows:size bytes:size dst_pitch:stride src_pitch:stride",
        "MTE2",
        COPY,
        "COPY",
        ("u8", "u8", ""),
        "rows of bytes between GM and UB, any size and GM alignment",
    )
    for names, cost_of in (
        (BINARY, "binary"),
        (SCALAR, "scalar"),
        (UNARY, "unary"),
        (COMPARE, "compare"),
    ):
        for name, meaning in names.items():
            for dtype in VECTOR_DTYPES:
                if dtype == "i32" and name in FLOAT_ONLY:
                    continue
                second = {
                    "binary": "src1:src",
                    "compare": "src1:src",
                    "scalar": "src1:immediate",
                }.get(cost_of, "src1:immediate")
                src1 = dtype if second == "src1:src" else ""
                _add(
                    f"{name}_{dtype}",
                    f"dst:dst src0:src {second} {_VECTOR}",
                    "V",
                    VECTOR,
                    name,
                    (dtype, dtype, src1),
                    meaning,
                )
    for dtype in VECTOR_DTYPES:
        _add(
            f"VDUP_{dtype}",
            f"dst:dst src0:immediate src1:immediate {_VECTOR}",
            "V",
            VECTOR,
            "VDUP",
            (dtype, "", ""),
            "src1",
        )
        _add(
            f"VSEL_{dtype}",
            f"dst:inout src0:src src1:src {_VECTOR}",
            "V",
            VECTOR,
            "VSEL",
            (dtype, dtype, dtype),
            "b if a != 0 else what was in dst",
        )
    for source in CONVERTIBLE:
        for result in CONVERTIBLE:
            if source != result:
                _add(
                    f"VCONV_{source}_{result}",
                    f"dst:dst src0:src src1:immediate {_VECTOR}",
                    "V",
                    VECTOR,
                    "VCONV",
                    (result, source, ""),
                    f"{source} to {result}; to integers truncating, else to nearest even",
                )
    for name, meaning in CROSS.items():
        for dtype in VECTOR_DTYPES:
            _add(
                f"{name}_{dtype}",
                f"dst:dst src0:src src1:immediate {_VECTOR}",
                "V",
                REDUCE,
                f"{name}_{dtype}",
                (dtype, dtype, ""),
                f"{meaning} of each repeat's lanes to dst + i * dst_rep, in fixed tree order",
            )
    for es in ("b16", "b32"):
        _add(
            f"BRCB_{es}",
            "dst:dst src:src count:size",
            "V",
            BRCB,
            "BRCB",
            (es, es, ""),
            "element i of src fills the 32 B block i of dst",
        )


_build()
OPS: tuple[str, ...] = ("",) * FIRST_INSTRUCTION + tuple(INSTRUCTIONS)
LAST_OP = len(OPS)

# columns of TRAITS
T_FAMILY, T_DST, T_SRC0, T_SRC1, T_INOUT, T_ADDRESSES, T_WIDEST, T_FROM_GM = range(8)
TRAIT_COLUMNS = 8


def _traits() -> np.ndarray:
    table = np.zeros((LAST_OP, TRAIT_COLUMNS), np.int64)
    for spec in INSTRUCTIONS.values():
        row = table[spec.number]
        sizes = [DTYPE_BYTES.get(d, 0) for d in spec.dtypes]
        row[T_FAMILY] = spec.family
        row[T_DST : T_SRC1 + 1] = sizes
        row[T_INOUT] = any(o.role == "inout" for o in spec.operands)
        row[T_ADDRESSES] = sum(1 << i for i in spec.addresses)
        row[T_WIDEST] = max(sizes)
    return table


#: int64[ops, 8]: family, bytes of an element of dst, src0, src1 (0: none), inout, mask of address
#: columns, widest element
TRAITS = _traits()
