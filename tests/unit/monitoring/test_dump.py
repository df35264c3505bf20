"""A dump has versions, stacks, settings and the worker's description, and no secrets."""

import logging
import threading

from scheduler_worker import conf
from scheduler_worker.monitoring import dump
from scheduler_worker.rpc.transport import register_opts
from tests.support.interrupted import raising


def options(*arguments):
    found = conf.load(arguments)
    register_opts(found)
    return found


def test_a_dump_has_versions_threads_settings_and_the_worker():
    found = list(dump.lines(lambda: {"clusters": {"east": {"promises": 3}}}, options()))
    titles = [line for line in found if line.startswith("== ")]
    assert titles == ["== Versions ==", "== Threads ==", "== Settings ==", "== Worker =="]
    assert any(line.startswith("scheduler_worker 0.") for line in found)
    assert any(line.startswith("rpc.topic ") for line in found)
    assert 'clusters = {"east": {"promises": 3}}' in found


def test_stacks_have_lines_of_code_and_no_values():
    released = threading.Event()
    began = threading.Event()

    def hang(password):
        began.set()
        released.wait()

    threading.Thread(target=hang, args=["hush"], name="hanging", daemon=True).start()
    began.wait()
    found = "\n".join(dump.stacks())
    released.set()
    assert "-- hanging (" in found
    assert "hang: released.wait()" in found
    assert "hush" not in found


def test_secret_options_are_masked():
    found = options()
    found.set_override("url", "redis://u:hush@h/", group="state")
    found.set_override("transport_url", "rabbit://u:hush@h/")
    text = "\n".join(dump.settings(found))
    assert "hush" not in text
    assert "state.url" in text


def test_a_failing_description_leaves_the_other_sections():
    found = list(dump.lines(raising(RuntimeError("password=hush")), options()))
    assert found[-1] == "not available: RuntimeError('password=***')"
    assert "== Settings ==" in found


def test_a_worker_that_hangs_does_not_block_the_dump(monkeypatch):
    monkeypatch.setattr(dump, "_TIMEOUT_S", 0.01)
    released = threading.Event()

    def hang():
        released.wait()
        return {}

    found = list(dump.lines(hang, options()))
    released.set()
    assert found[-1] == "not available: TimeoutError()"


def test_a_dump_is_logged_line_by_line(caplog):
    with caplog.at_level(logging.WARNING):
        dump.write(["one", "two %s"], None)
    assert [record.getMessage() for record in caplog.records] == ["one", "two %s"]


def test_the_file_of_a_dump_is_readable_by_its_owner_only(tmp_path, caplog):
    dump.write(iter(["one", "two"]), str(tmp_path))
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [record.getMessage() for record in caplog.records] == [f"Dumped to {path}", "one", "two"]


def test_without_the_directory_the_log_has_the_whole_dump(tmp_path, caplog):
    dump.write(iter(["one", "two"]), str(tmp_path / "none"))
    logged = [record.getMessage() for record in caplog.records]
    assert logged[0].startswith("[monitoring] dump_dir: ")
    assert logged[1:] == ["one", "two"]
