"""The operator's files about tuning: found, named, and told of when they cannot be read."""

from scheduler_worker.backends.policy_files import Files


def test_files_and_those_of_directories_are_read_and_named(tmp_path):
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "b.yaml").write_text("b")
    (directory / "a.yaml").write_text("a")
    (directory / "notes.txt").write_text("no policy")
    alone = tmp_path / "alone.policy"
    alone.write_text("c")
    found = Files([str(directory), str(alone)]).read()
    assert [(each.name, each.text) for each in found.policies] == [
        ("a", "a"),
        ("b", "b"),
        ("alone", "c"),
    ]
    assert found.policies[0].place == str(directory / "a.yaml")
    assert (found.clusters, found.problems) == (None, ())


def test_a_change_is_seen_by_the_next_reading(tmp_path):
    path = tmp_path / "clusters.yaml"
    path.write_text("one")
    files = Files([], str(path))
    path.write_text("two")
    assert files.read().clusters.text == "two"


def test_what_cannot_be_read_is_told_and_keeps_nothing_else_from_being_read(tmp_path):
    (tmp_path / "good.yaml").write_text("good")
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "good.yaml").write_text("twice")
    found = Files([str(tmp_path), str(tmp_path / "more"), str(tmp_path / "none")]).read()
    assert [each.text for each in found.policies] == ["good"]
    latin, twice, none = found.problems
    assert "latin.yaml: is no UTF-8 text" in latin
    assert "more/good.yaml" in twice and "is a policy 'good' already" in twice
    assert none == f"{tmp_path / 'none'}: No such file or directory"
