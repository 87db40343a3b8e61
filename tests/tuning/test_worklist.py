"""Lists of workloads: text, files, shipped lists; bad entries among good ones."""

import json

import pytest

from akg_py.errors import ExpressionError, SpaceError
from akg_py.tuning.worklist import read, shipped_lists


def texts(worklist):
    return [(e.workload.text, e.count) for e in worklist.entries]


def test_text():
    assert texts(read("add:shape=4x8")) == [("add:shape=4x8,dtype=float16", 1)]


@pytest.mark.parametrize("name", shipped_lists())
def test_shipped_lists_have_no_problems(name):
    worklist = read(name)
    assert not worklist.problems and len(worklist.entries) >= 10
    assert all(e.count >= 1 and e.note for e in worklist.entries)


def test_shipped_bert_base_counts():
    counts = dict(texts(read("bert-base")))
    assert counts["matmul:m=1024,n=768,k=768,dtype=float16"] == 4 * 12
    assert counts["layer_norm:shape=1024x768,dtype=float16"] == 2 * 12 + 1


def test_one_bad_line_the_others_go_on(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text(
        "# mine\nadd:shape=4x8\n\nmatmul:m=1,n=2\nsoftmax:shape=2x2 # last\nadd:shape=4x8\n"
    )
    worklist = read(str(path))
    assert texts(worklist) == [
        ("add:shape=4x8,dtype=float16", 2),
        ("softmax:shape=2x2,dtype=float16", 1),
    ]
    assert (
        len(worklist.problems) == 1 and "list.txt, line 4: matmul without k" in worklist.problems[0]
    )


def test_toml_and_json(tmp_path):
    toml = tmp_path / "a.toml"
    toml.write_text(
        'workloads = [{workload = "add:shape=4x8", count = 3}, "relu:shape=1x1",'
        ' {workload = "nope:x=1"}, {workload = "add:shape=1x1", cuont = 2}, {count = 1},'
        ' {workload = "relu:shape=2x2", count = 0}]'
    )
    worklist = read(str(toml))
    assert texts(worklist) == [
        ("add:shape=4x8,dtype=float16", 3),
        ("relu:shape=1x1,dtype=float16", 1),
    ]
    assert [p.split(": ")[0].rsplit(", ")[1] for p in worklist.problems] == [
        "entry 3",
        "entry 4",
        "entry 5",
        "entry 6",
    ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"workload": "add:shape=4x8", "count": 3}, "relu:shape=1x1", 5]))
    assert texts(read(str(path))) == texts(worklist)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "no workload in it"),
        ("a.txt", "# only comments\n", "no workload in it"),
        ("a.txt", "addd:shape=4x8\n", "no workload to tune"),
        ("a.toml", "a = ", "not a TOML file"),
        ("a.toml", "a = 1", "no list `workloads`"),
        ("a.json", "{", "not a JSON file"),
        ("a.json", "3", "no list `workloads`"),
        ("a.txt", "\xff\xfe", "not UTF-8"),
    ],
)
def test_unusable_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SpaceError, match=message) as info:
        read(str(path))
    assert str(path) in str(info.value)


def test_missing_things(tmp_path):
    with pytest.raises(SpaceError, match="no such file"):
        read(str(tmp_path / "none.toml"))
    with pytest.raises(SpaceError, match="no workload, file or shipped list") as info:
        read("bert-bse")
    assert "bert-base" in info.value.hint


@pytest.mark.parametrize(
    ("text", "kind", "message", "hint"),
    [
        ("matmull:m=1", ExpressionError, "unknown operator 'matmull'", "matmul"),
        ("matmul:m=1,n=1,k=1,dtype=flot16", ExpressionError, "unknown dtype 'flot16'", "float16"),
        ("matmul:m=1,n=1,q=1", ExpressionError, "no attribute q", "k: int"),
        ("matmul:m=1,n=1", ExpressionError, "without k", "k: int"),
        ("matmul:m=1,n=1,k=-4", ExpressionError, "k is '-4'", "0 or more"),
        ("matmul:m=1,n=1,k=1.5", ExpressionError, "k is '1.5'", "0 or more"),
        ("matmul:m=1,n=1,k=99999999999", ExpressionError, "k is", "2147483647"),
        ("softmax:shape=4xx4", ExpressionError, "shape", "0 or more"),
        ("softmax:shape", SpaceError, "can't read 'shape'", "attribute=value"),
        ("add:shape=1x1,shape=2x2", SpaceError, "stands twice", ""),
        (":shape=1", SpaceError, "no operator", "attribute=value"),
        ("gelu:shape=1x1,form=quick", ExpressionError, "form is 'quick'", "tanh, erf"),
    ],
)
def test_wrong_text(text, kind, message, hint):
    with pytest.raises(kind, match=message) as info:
        read(text)
    assert hint in info.value.hint
