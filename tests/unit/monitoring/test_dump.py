"""A dump tells names and lines of code, and nothing that is secret."""

import logging
import threading

from scheduler_worker import conf
from scheduler_worker.monitoring import dump
from scheduler_worker.rpc.transport import register_opts


def options(*arguments):
    found = conf.load(arguments)
    register_opts(found)
    return found


def test_it_tells_versions_threads_settings_and_the_worker():
    told = list(dump.lines(lambda: {"clusters": {"east": {"promises": 3}}}, options()))
    titles = [line for line in told if line.startswith("== ")]
    assert titles == ["== Versions ==", "== Threads ==", "== Settings ==", "== Worker =="]
    assert any(line.startswith("scheduler_worker 0.") for line in told)
    assert any(line.startswith("rpc.topic ") for line in told)
    assert 'clusters = {"east": {"promises": 3}}' in told


def test_every_thread_shows_where_it_is_and_not_what_it_holds():
    let_go = threading.Event()
    began = threading.Event()

    def hang(password):
        began.set()
        let_go.wait()

    threading.Thread(target=hang, args=["hush"], name="hanging", daemon=True).start()
    began.wait()
    told = "\n".join(dump.stacks())
    let_go.set()
    assert "-- hanging (" in told
    assert "hang: let_go.wait()" in told
    assert "hush" not in told


def test_secret_options_are_masked():
    found = options()
    found.set_override("url", "redis://u:hush@h/", group="state")
    found.set_override("transport_url", "rabbit://u:hush@h/")
    told = "\n".join(dump.settings(found))
    assert "hush" not in told
    assert "state.url" in told


def test_a_worker_that_cannot_tell_spoils_only_its_part():
    def broken():
        raise RuntimeError("password=hush")

    told = list(dump.lines(broken, options()))
    assert told[-1] == "cannot be told: RuntimeError('password=***')"
    assert "== Settings ==" in told


def test_a_worker_that_hangs_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(dump, "_PATIENCE_S", 0.01)
    let_go = threading.Event()
    told = list(dump.lines(lambda: let_go.wait() or {}, options()))
    let_go.set()
    assert told[-1] == "cannot be told: TimeoutError()"


def test_it_goes_to_the_log_line_by_line(caplog):
    with caplog.at_level(logging.WARNING):
        dump.write(["one", "two %s"], None)
    assert [record.getMessage() for record in caplog.records] == ["one", "two %s"]


def test_it_goes_to_a_file_that_only_its_owner_reads(tmp_path, caplog):
    dump.write(iter(["one", "two"]), str(tmp_path))
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [record.getMessage() for record in caplog.records] == [f"Dumped to {path}", "one", "two"]


def test_without_the_directory_the_log_has_it_all(tmp_path, caplog):
    dump.write(iter(["one", "two"]), str(tmp_path / "none"))
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("[monitoring] dump_dir: ")
    assert said[1:] == ["one", "two"]
