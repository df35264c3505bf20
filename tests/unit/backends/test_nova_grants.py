"""Which grants of MariaDB and MySQL let an account write to one database."""

import pytest

from scheduler_worker.backends.nova.database import writing_grants


@pytest.mark.parametrize(
    ("grant", "found"),
    [
        ("GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*A'", ()),
        ("GRANT SELECT ON `nova`.* TO `u`@`%`", ()),
        ("GRANT SELECT, SHOW VIEW ON `nova`.* TO `u`@`%`", ()),
        ("GRANT SELECT (a, b) ON `nova`.`instances` TO `u`@`%`", ()),
        ("GRANT ALL PRIVILEGES ON `nova`.* TO `u`@`%`", ("ALL PRIVILEGES on `nova`.*",)),
        ("GRANT ALL PRIVILEGES ON `other`.* TO `u`@`%`", ()),
        ("GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION", ("ALL PRIVILEGES on *.*",)),
        ("GRANT ALL PRIVILEGES ON `no%`.* TO `u`@`%`", ("ALL PRIVILEGES on `no%`.*",)),
        (
            "GRANT SELECT, UPDATE, INSERT ON `nova`.`instances` TO `u`@`%`",
            ("INSERT on `nova`.`instances`", "UPDATE on `nova`.`instances`"),
        ),
        ("GRANT INSERT (a, b) ON `nova`.`x` TO `u`@`%`", ("INSERT on `nova`.`x`",)),
        ("GRANT PROXY ON ''@'%' TO 'root'@'localhost' WITH GRANT OPTION", ()),
        ("GRANT `role` TO `u`@`%`", ()),
    ],
)
def test_a_grant(grant, found):
    assert writing_grants([grant], "nova") == found


def test_an_escaped_underscore_is_one():
    grant = "GRANT INSERT ON `nova\\_api`.* TO `u`@`%`"
    assert writing_grants([grant], "nova_api") == ("INSERT on `nova\\_api`.*",)
