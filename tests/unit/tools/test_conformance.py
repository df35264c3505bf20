"""The conformance runner: what it reads, counts and answers."""

import gzip
import json

import pytest
from conformance import cli, registry
from conformance.reading import Malformed, documents

GOOD = {"value": "2", "req": ">= 1", "result": True}
BAD = {"value": "2", "req": ">= 1", "result": False}
RAISES = {"value": "x", "req": ">= 1", "raises": "ValueError"}
NORMALIZE = {"list": [1, 3], "kw": {}, "result": [0, 1]}


@pytest.fixture
def written(tmp_path):
    def write(*lines):
        path = tmp_path / "cases"
        texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
        path.write_text("\n".join(texts) + "\n")
        return path

    return write


def values(path):
    return [each.value for each in documents(path)]


def test_cases_are_read_from_lines_lists_and_gzip(written, tmp_path):
    assert values(written(GOOD, BAD)) == [GOOD, BAD]
    path = written(json.dumps([GOOD, BAD], indent=1))
    assert values(path) == [GOOD, BAD]
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert values(packed) == [GOOD, BAD]


def test_a_case_is_placed_where_it_begins(written):
    path = written("[", json.dumps(GOOD, indent=1) + ",", BAD, "]", RAISES)
    assert [each.place for each in documents(path)] == [f"{path}:{line}" for line in (2, 7, 9)]


@pytest.mark.parametrize("text", ['{"value": 1', "[1, 2", "nonsense"])
def test_what_is_no_json_is_named_with_its_line(written, text):
    path = written(GOOD, text)
    with pytest.raises(Malformed, match=rf"{path}:[23]: is not JSON"):
        list(documents(path))


def test_damaged_gzip_is_named(tmp_path):
    path = tmp_path / "broken.gz"
    path.write_bytes(gzip.compress(b"[]" * 99)[:-5])
    with pytest.raises(Malformed, match=r"broken\.gz"):
        list(documents(path))


def test_each_kind_is_counted_by_itself(written, capsys):
    assert cli.main([str(written(GOOD, RAISES, NORMALIZE))]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "extra-spec: 1 passed, 0 failed, 1 raised there, sane here",
        "normalize: 1 passed, 0 failed",
    ]


def test_a_difference_is_told_with_its_place_and_fails_the_run(written, capsys):
    path = written(GOOD, BAD)
    assert cli.main([str(path)]) == cli.FAILED
    told = capsys.readouterr().out
    assert f"{path}:2: extra-spec: '>= 1' of '2' is True; recorded is False" in told
    assert "extra-spec: 1 passed, 1 failed" in told


def test_what_cannot_be_read_does_not_hide_the_rest(written, capsys, tmp_path):
    path = written({"strange": 1}, {"list": 5, "kw": {}, "result": []}, GOOD)
    assert cli.main([str(tmp_path / "missing"), str(path)]) == cli.UNREADABLE
    told = capsys.readouterr()
    assert "missing" in told.err
    assert f"{path}:1: no kind of case looks so (strange)" in told.err
    assert f"{path}:2: malformed normalize case: Expected `array`" in told.err
    assert "extra-spec: 1 passed, 0 failed" in told.out


def test_a_unit_that_is_not_there_fails_the_case(written, capsys):
    case = {"filter": "NoSuchFilter", "config": {}, "request_spec": {}, "expect": {"passes": True}}
    host = {"compute_node": {}, "service": {}, "cell_uuid": "", "instances": []}
    case["host"] = host | {"aggregates": [], "allocation_candidates": []}
    assert cli.main([str(written(case))]) == cli.FAILED
    assert "unknown filter NoSuchFilter" in capsys.readouterr().out


def test_an_option_that_does_not_exist_is_a_malformed_case():
    from conformance import nova

    with pytest.raises(Malformed, match="no_such_option"):
        nova.options({"filter_scheduler.no_such_option": 1})


def test_an_exception_of_ours_fails_only_its_case(written, capsys, monkeypatch):
    def broken(case):
        raise ZeroDivisionError("one case")
        yield

    kinds = (registry.Kind("broken", lambda document: document == BAD, broken), *registry.kinds())
    monkeypatch.setattr(registry, "kinds", lambda: kinds)
    assert cli.main([str(written(BAD, GOOD))]) == cli.FAILED
    told = capsys.readouterr().out
    assert "raises ZeroDivisionError: one case" in told
    assert "extra-spec: 1 passed, 0 failed" in told


def test_the_help_names_every_kind_of_nova(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    told = capsys.readouterr().out
    for name in ("filter", "weigher", "schedule", "extra-spec", "json-query", "normalize"):
        assert f"  {name} " in told
