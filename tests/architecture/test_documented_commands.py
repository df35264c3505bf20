"""Every command of the documents is run by a test, unless it needs what a plain install lacks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
RUN = {
    "README.md": "integration/test_documented_commands.py",
    "docs/cluster-policies.md": "integration/test_documented_commands.py",
    "docs/first-placement.md": "integration/test_documented_commands.py",
    "docs/migrating-from-ovirt.md": "examples/test_policy_units.py",
    "docs/nova-tutorial.md": "nova/test_tutorial.py",
    "docs/rest-v1.md": "unit/api/test_v1_examples.py",
    "docs/scheduler-worker-manage.md": "processes/test_manage.py",
    "docs/scheduler-workerctl.md": "unit/cli/test_ctl.py",
    "docs/tuning.md": "integration/test_documented_commands.py",
}
"""A page whose commands are run, and the test that reads them from it."""
NEEDS = {
    "README.md": {"Try it": "nothing: examples/test_readme.py runs it"},
    "docs/cluster-policies.md": {"From a unit of your own to a policy": "pip"},
    "docs/console.md": {"Console": "a person before a browser"},
    "docs/installing.md": {
        "1. Servers": "root",
        "2. The worker": "root",
        "3. Configuration": "root",
        "4. Start the systemd units": "systemd",
        "5. Verify": "the installed service",
        "6. REST API and console": "systemd",
        "Kubernetes": "a cluster",
    },
    "docs/migrating-from-nova.md": {
        "1. Install": "root",
        "2. Accounts": "Nova's database",
        "4. Doctor": "Nova's configuration",
        "5. Dry run": "systemd",
        "7. Verify": "a Nova cloud",
        "From Nova's options to a cluster policy": "Nova's configuration",
    },
    "docs/migrating-from-ovirt.md": {
        "2. Compare": "an oVirt engine",
        "4. Import and attach": "an oVirt engine",
    },
    "docs/monitoring.md": {"The dump": "systemd"},
    "docs/rpc.md": {"RPC": "pip"},
    "docs/scheduler-worker-manage.md": {"policy import-ovirt": "an oVirt engine"},
    "docs/security.md": {
        "RabbitMQ": "a RabbitMQ of the operator",
        "Redis": "a Redis of the operator",
        "Secrets in logs": "a RabbitMQ of the operator",
    },
    "docs/testing.md": {"Real input": "minutes"},
    "docs/upgrading.md": {"Upgrade": "systemd", "Back up Redis": "a Redis of the operator"},
}
"""The sections whose commands no test runs, and what they need."""
_BLOCK = re.compile(r"^```(?:console|shell)\n", re.MULTILINE)


def sections(page: str) -> set[str]:
    """The headings above blocks of commands."""
    parts = re.split(r"^#+ (.*)\n", (ROOT / page).read_text(), flags=re.MULTILINE)
    return {
        title for title, text in zip(parts[1::2], parts[2::2], strict=True) if _BLOCK.search(text)
    }


PAGES = {
    page: found
    for page in ["README.md", *(f"docs/{each.name}" for each in sorted(ROOT.glob("docs/*.md")))]
    if (found := sections(page))
}


@pytest.mark.parametrize("page", PAGES)
def test_each_command_is_run_or_needs_more_than_a_plain_install(page):
    excused = NEEDS.get(page, {}).keys()
    assert excused <= PAGES[page], "these have no commands any more"
    if page not in RUN:
        assert PAGES[page] == excused


@pytest.mark.parametrize(("page", "test"), RUN.items())
def test_the_test_of_a_page_reads_it(page, test):
    assert Path(page).stem in (TESTS / test).read_text()
