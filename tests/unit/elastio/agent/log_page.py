"""docs/reference/log.md, made from the tables of `log_events`. Run this file to write the page again."""

from __future__ import annotations

from pathlib import Path

from elastio.agent.log_events import FIELDS, EventKind
from tests.unit.elastio.core.state_machine_page import table

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "log.md"

HEAD = """\
# Log

The agent tells what it decides, buys, flushes and deletes, and what fails, by *log events*. Under systemd each is one
record of the journal of systemd, with a priority, a MESSAGE_ID and fields; elsewhere it is one line on stderr.
`elastio events` shows the same from the agent's own journal, without that of systemd, and also while no agent runs.

    journalctl -u elastiod -p err                            # what only an operator can resolve
    journalctl -u elastiod ELASTIO_EVENT=boost-over          # one record for each boost, with its bill
    journalctl -u elastiod ELASTIO_EVENT=order ASKED_BY=1000
    journalctl -u elastiod -o json -f
    elastio events --since 7d --json

Names and MESSAGE_IDs do not change; the sentences may. `agent.log_level` leaves out what is below it: `"warning"` also
leaves out notices.
"""

TAIL = """\
In the journal of systemd the names are upper case (`PRICE_PER_HOUR`), and fields of which nothing is known are
missing. There are also `MESSAGE`, `PRIORITY`, `SYSLOG_IDENTIFIER=elastiod`, `LOGGER` (the module), and after records
that the journal did not take `ELASTIO_LOST_RECORDS`, their number. Values are cut at 4096 bytes.

`elastio events --json` prints each event as one object on a line. It has always the same keys: `time` (RFC 3339, UTC),
`event`, `priority` (its name), `message`, `message_id` and the fields of the table, `null` where nothing is known.
Strings are strings and amounts are numbers; `asked_by` is a string.

## What each has

A log event is made from what the agent's journal records of decisions and outcomes, so both ways show the same, with
two exceptions. Errors of what the agent only reads or asks (a scan of the kernel, a list of volumes, a price) are in
the log and not in its journal. And the journal is kept in two files of at most 4 MiB each: `elastio events` reaches as
far back as they do. An action that has to find its instant, such as the end of a flush, is an error from its third
failure in a row on.
"""


def page() -> str:
    kinds = ((f"`{k.label}`", k.priority.name.lower(), f"`{k.message_id}`", k.meaning) for k in EventKind)
    fields = ((f"`{name}`", meaning) for name, meaning in FIELDS.items())
    parts = (
        HEAD,
        table("Kinds", ("`ELASTIO_EVENT`", "priority", "`MESSAGE_ID`", "what it says"), *kinds),
        table("Fields", ("field", "meaning"), *fields),
        TAIL,
    )
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
