"""The operator's tuning files: which are read, their names, and files that cannot be read."""

from scheduler_worker.backends.tuning_policy_files import TuningPolicyFiles


def test_files_and_the_yaml_files_of_directories_are_read(tmp_path):
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "b.yaml").write_text("b")
    (directory / "a.yaml").write_text("a")
    (directory / "notes.txt").write_text("no policy")
    alone = tmp_path / "alone.policy"
    alone.write_text("c")
    found = TuningPolicyFiles([str(directory), str(alone)]).read()
    assert [(each.name, each.text) for each in found.policies] == [
        ("a", "a"),
        ("b", "b"),
        ("alone", "c"),
    ]
    assert found.policies[0].file == str(directory / "a.yaml")
    assert (found.clusters, found.problems) == (None, ())


def test_files_are_read_anew_each_time(tmp_path):
    path = tmp_path / "clusters.yaml"
    path.write_text("one")
    files = TuningPolicyFiles([], str(path))
    path.write_text("two")
    assert files.read().clusters.text == "two"


def test_a_file_that_cannot_be_read_is_reported_and_affects_no_other(tmp_path):
    (tmp_path / "good.yaml").write_text("good")
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "good.yaml").write_text("twice")
    found = TuningPolicyFiles(
        [str(tmp_path), str(tmp_path / "more"), str(tmp_path / "none")]
    ).read()
    assert [each.text for each in found.policies] == ["good"]
    latin, twice, none = found.problems
    assert latin.file == str(tmp_path / "latin.yaml")
    assert latin.message.startswith("is not UTF-8 text")
    assert twice.file == str(tmp_path / "more" / "good.yaml")
    assert "is already a policy 'good'" in twice.message
    assert (none.file, none.message) == (str(tmp_path / "none"), "No such file or directory")
