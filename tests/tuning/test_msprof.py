"""Profiles: real headers, counted launches, skipped types."""

import pytest

from akg_py.errors import SpaceError
from akg_py.tuning.worklist import read

SUMMARY = (
    "Step Id,Model ID,Task ID,Stream ID,Op Name,OP Type,Task Type,Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,"
    "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aiv_time(us),aiv_total_cycles"
)
DETAILS = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),"
    "Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,"
    "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,Context ID,"
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio"
)


def row(header, kind, inputs, outputs, dtype="FLOAT16", fmt="ND"):
    count = inputs.count(";") + 1
    cells = {
        "OP Type": kind,
        "Type": kind,
        "Input Shapes": f'"{inputs}"',
        "Output Shapes": f'"{outputs}"',
        "Input Data Types": ";".join([dtype] * count),
        "Input Formats": ";".join([fmt] * count),
    }
    return ",".join(cells.get(name, "0") for name in header.split(","))


def profile(tmp_path, header, rows):
    path = tmp_path / "op_summary_0.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return read(str(path))


@pytest.mark.parametrize("header", [SUMMARY, DETAILS])
def test_rows_become_counted_workloads(tmp_path, header):
    rows = [
        row(header, "MatMulV2", "1024,768;768,3072", "1024,3072"),
        row(header, "MatMulV3", "1024,768;3072,768", "1024,3072"),  # B transposed: shapes tell
        row(header, "MatMulV3", "768,1024;768,3072", "1024,3072", "DT_BF16"),
        row(header, "BatchMatMulV2", "8,12,128,64;8,12,64,128", "8,12,128,128"),
        row(header, "SoftmaxV2", "8,12,128,128", "8,12,128,128"),
        row(header, "LayerNormV3", "8,128,768;768;768", "8,128,768;8,128,1;8,128,1", "FLOAT"),
        row(header, "Add", "1024,768;1024,768", "1024,768"),
        row(header, "Add", "1024,768;768", "1024,768"),
        row(header, "Add", "1024,768;1024,1", "1024,768"),
        row(header, "Gelu", "1024,3072", "1024,3072"),
        row(header, "Gelu", "1024,3072", "1024,3072"),
        row(header, "Transpose", "8,128", "128,8"),
        row(header, "Transpose", "8,128", "128,8"),
        row(header, "MatMulV2", "64,64,16,16;4,4,16,16", "64,64,16,16", fmt="FRACTAL_NZ"),
    ]
    worklist = profile(tmp_path, header, rows)
    counts = {e.workload.text: e.count for e in worklist.entries}
    assert counts == {
        "matmul:m=1024,n=3072,k=768,dtype=float16": 2,
        "matmul:m=1024,n=3072,k=768,dtype=bfloat16": 1,
        "batch_matmul:b=96,m=128,n=128,k=64,dtype=float16": 1,
        "softmax:shape=8x12x128x128,dtype=float16": 1,
        "layer_norm:shape=8x128x768,dtype=float32": 1,
        "add:shape=1024x768,dtype=float16": 1,
        "bias_add:shape=1024x768,dtype=float16": 1,
        "gelu:shape=1024x3072,dtype=float16": 2,
    }
    assert ("Transpose", 2, "no such operator in akg_py") in worklist.skipped
    assert ("Add", 1, "broadcast operands") in worklist.skipped
    assert ("MatMulV2", 1, "format FRACTAL_NZ") in worklist.skipped
    assert not worklist.problems


def test_bad_rows_are_named(tmp_path):
    rows = [row(SUMMARY, "Gelu", "4,8", "4,8"), "1,2,3", row(SUMMARY, "Gelu", "4,oops", "4,8")]
    worklist = profile(tmp_path, SUMMARY, rows)
    assert len(worklist.entries) == 1
    assert (
        "line 3: 3 cells" in worklist.problems[0]
        and "line 4: can't read the shapes" in worklist.problems[1]
    )


def test_no_shapes_says_so(tmp_path):
    header = (
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"
    )
    with pytest.raises(SpaceError, match="no shapes") as info:
        profile(tmp_path, header, ["1,a,MatMulV2,AI_CORE,0,1,0,20"])
    assert "record_shapes" in info.value.hint


def test_other_csv(tmp_path):
    with pytest.raises(SpaceError, match="not a profile"):
        profile(tmp_path, "a,b,c", ["1,2,3"])
    with pytest.raises(SpaceError, match="not a profile"):
        profile(tmp_path, "", [])


def test_only_unknown_types(tmp_path):
    with pytest.raises(SpaceError, match="no workload to tune") as info:
        profile(tmp_path, SUMMARY, [row(SUMMARY, "Transpose", "8,8", "8,8")] * 3)
    assert "skipped 3 x Transpose" in info.value.message
