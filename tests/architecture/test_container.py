"""The image is made of files that exist, and its last stage has neither root nor build tools."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES = re.sub(
    r"^#.*\n", "", (ROOT / "etc/container/Containerfile").read_text(), flags=re.MULTILINE
)
LINES = LINES.replace("\\\n", " ")
STAGES = [stage.splitlines() for stage in re.split(r"^(?=FROM )", LINES, flags=re.MULTILINE)[1:]]
BUILD, LAST = ([each for each in stage if each.strip()] for stage in STAGES)


def the(instruction: str) -> str:
    (found,) = [each for each in LAST if each.startswith(f"{instruction} ")]
    return found.removeprefix(f"{instruction} ")


def test_the_build_has_all_that_the_package_is_made_of():
    copied = [name for line in BUILD if line.startswith("COPY ") for name in line.split()[1:-1]]
    assert [each for each in copied if not (ROOT / each).exists()] == []
    setup = (ROOT / "setup.cfg").read_text()
    data = setup.partition("[options.data_files]")[2].partition("\n[")[0]
    files = [each.strip() for each in data.splitlines() if each.startswith("    ")]
    assert len(files) > 10
    assert [each for each in files if each.split("/")[0] not in copied] == []
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert set(copied).isdisjoint(ignored)


def test_the_extras_exist():
    setup = (ROOT / "setup.cfg").read_text()
    (named,) = re.findall(r"'\.\[([\w,]+)\]'", LINES)
    for extra in named.split(","):
        assert re.search(rf"^{extra} =$", setup, re.MULTILINE), extra


def test_the_last_stage_runs_as_a_numbered_user_without_tools():
    user = re.fullmatch(r"(\d+):\d+", the("USER"))
    assert int(user.group(1)) > 0
    text = "\n".join(LAST)
    assert "pip uninstall --yes" in text
    assert not re.search(r"apt|gcc|build-essential|pip install", text)
    assert [each for each in LAST if each.startswith("COPY ")] == [
        "COPY --from=build /opt/scheduler_worker /opt/scheduler_worker"
    ]


def test_its_health_is_the_readiness_of_the_worker():
    assert "/readyz" in the("ENV")
    assert "READY_URL" in the("HEALTHCHECK")
    port = re.search(r":(\d+)/readyz", the("ENV")).group(1)
    assert port in the("EXPOSE").split()
    config = (ROOT / "etc/kubernetes/base/scheduler_worker.conf").read_text()
    assert re.search(rf"^port = {port}$", config, re.MULTILINE)


def test_its_command_is_one_that_is_installed():
    command = re.findall(r'"(.+?)"', the("CMD"))
    assert re.search(rf"^    {command[0]} = ", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
