"""What goes wrong in a real OpenStack while a guest boosts, one thing in each run, and what came of it.

As in the campaign on EC2 a writer in the guest has every record acknowledged by the host before it counts, and all
of them are read back after the run. A fault lasts until the agent has met it; then it is put right as an operator
would, and the agent has to come to rest by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from keystoneauth1.exceptions import ClientException
from openstack.exceptions import SDKException

from elastio_testbed.faults import acks
from elastio_testbed.faults.kinds import Moment
from elastio_testbed.hypervisor import HypervisorError
from elastio_testbed.image import GuestImage, ImageError
from elastio_testbed.openstack import content, services
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.openstack.lab import Lab
from elastio_testbed.openstack.subject import NovaSubject, booted, errors_in, open_intents

MOMENT_S = 240.0
# For the agent to meet what went wrong: services believe a token for some seconds, and a burst has to end first.
FELT_S = 300.0
DETACHING_S = 120.0
# The test's own volume is the only one: with so many the project may have no more.
FULL = {"volumes": 1}
FAILURES = (HypervisorError, LabError, ImageError, SDKException, ClientException, OSError, ValueError, KeyError)

Deed = Callable[[NovaSubject], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table: at `moment` comes `strike`, and no sooner than `trigger_delay_s` later `mend`.

    `is_early`: it is struck before the load, or the moment would be over before it is in force.
    `said` is a part of the error that the agent has to have met before the end of the fault, `said_later` of one until
    the end of the run; empty: it need not notice. `shown` is what Cinder has to show of the cache volume just before
    the end of the fault; empty: anything. `check` is the check of `elastio doctor` that has to fail meanwhile, and
    `way_out` a part of its sentence.
    """

    name: str
    moment: Moment
    strike: Deed
    mend: Deed
    said: str = ""
    said_later: str = ""
    shown: tuple[str, ...] = ()
    trigger_delay_s: float = 20.0
    is_early: bool = False
    check: str = ""
    way_out: str = ""

    def is_seen_in(self, doctor: str, shown: Sequence[str]) -> bool:
        """Whether doctor and Cinder said what they have to say during this fault."""
        as_shown = any(status in self.shown for status in shown) or not self.shown
        return self.way_out in doctor and as_shown


def _without(service: str) -> tuple[Deed, Deed]:
    """A service ends, and is started again."""
    return lambda subject: subject.end_service(service), lambda subject: subject.start_service(service)


def _lose_the_detach(subject: NovaSubject) -> None:
    """Nova has accepted it, and begins when Cinder does not answer any more: the volume stands still in `detaching`."""
    subject.freeze(services.NOVA_COMPUTE.name)
    try:
        subject.wait_until(lambda: "detaching" in subject.shown(), DETACHING_S, "the volume to be detaching")
        subject.end_service(services.CINDER_API.name)
    finally:
        subject.thaw(services.NOVA_COMPUTE.name)


NO_ANSWER = "it is asked again"
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "cinder-api-stopped-at-purchase",
            Moment("intent", "CreateVolume"),
            *_without(services.CINDER_API.name),
            NO_ANSWER,
        ),
        Kind(
            "nova-api-stopped-at-attach",
            Moment("outcome", "CreateVolume"),
            *_without(services.NOVA_API.name),
            NO_ANSWER,
        ),
        Kind(
            "cinder-volume-stopped-at-attach",
            Moment("intent", "AttachVolume"),
            *_without(services.CINDER_VOLUME.name),
            shown=("reserved", "attaching"),
            trigger_delay_s=30.0,
        ),
        Kind(
            "nova-api-stopped-at-detach",
            Moment("outcome", "DetachCacheSet"),
            *_without(services.NOVA_API.name),
            NO_ANSWER,
        ),
        Kind(
            "cinder-api-stopped-at-detach",
            Moment("intent", "DetachVolume"),
            *_without(services.CINDER_API.name),
            NO_ANSWER,
        ),
        Kind(
            "cinder-api-stopped-during-detach",
            Moment("outcome", "DetachCacheSet"),
            _lose_the_detach,
            _without(services.CINDER_API.name)[1],
            NO_ANSWER,
            said_later="stood still in detaching",
        ),
        Kind(
            "cinder-api-stopped-at-deletion",
            Moment("intent", "DeleteVolume"),
            *_without(services.CINDER_API.name),
            NO_ANSWER,
        ),
        Kind(
            "cinder-volume-stopped-at-deletion",
            Moment("intent", "DeleteVolume"),
            *_without(services.CINDER_VOLUME.name),
            shown=("deleting",),
        ),
        Kind(
            "credential-revoked",
            Moment("decision", "boosting"),
            NovaSubject.revoke,
            NovaSubject.renew,
            "make a new application credential",
            check="OpenStack credential",
            way_out="make a new application credential and put it into clouds.yaml",
        ),
        Kind(
            "quota-reached",
            Moment("intent", "CreateVolume"),
            lambda subject: subject.limit(**FULL),
            lambda subject: subject.limit(**content.QUOTA),
            "beyond a quota",
            is_early=True,
            check="OpenStack quota",
            way_out="ask the cloud's operator for a larger quota",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Story:
    """One run.

    `met`: agent, doctor and cloud said what they were expected to say of the fault. `doctor`: what `elastio doctor`
    said of it. `shown`: what Cinder showed of the cache volume at the end of the fault, where it could be asked.
    `felt`: the writer was ended by it, though applications should notice nothing. `rest_s`: from the end of the
    fault until nothing of the cycle was left. `open_intents` are actions whose outcome the journal does not have.
    `stuck` says why the run was given up.
    """

    kind: str
    acknowledged_records: int = 0
    lost_records: int = 0
    left_volumes: tuple[str, ...] = ()
    open_intents: tuple[str, ...] = ()
    came: bool = False
    met: bool = False
    doctor: str = ""
    shown: tuple[str, ...] = ()
    felt: bool = False
    fault_s: float | None = None
    rest_s: float | None = None
    stuck: str = ""
    errors: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        failed = self.lost_records or self.left_volumes or self.open_intents or self.felt or self.stuck
        return bool(self.came and self.met and self.acknowledged_records) and not failed

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.is_sound}


class Runner:
    """Use as a context manager. One guest serves all runs; one that a run has left unfit is replaced."""

    def __init__(self, lab: Lab, image: GuestImage, seed: int, say: Say) -> None:
        self._lab, self._image, self._seed, self._say = lab, image, seed, say
        self._stack = ExitStack()
        self._subject: NovaSubject | None = None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._discard()

    def subject(self) -> NovaSubject:
        """The guest that is fit for the next run. Raises LabError or HypervisorError when none comes up."""
        if self._subject is None:
            self._subject = self._stack.enter_context(booted(self._lab, self._image, self._say))
        return self._subject

    def carry_out(self, kinds: Sequence[Kind]) -> Iterator[Story]:
        """The story of each run as soon as it is known. Raises LabError or HypervisorError when no guest comes up."""
        for kind in kinds:
            self._say(kind.name)
            story = self._story(kind, self.subject())
            self._say(_told(story))
            if not story.is_sound:
                self._discard()
            yield story

    def _discard(self) -> None:
        """Whatever the fault was: every service runs, the quota is what it was, and nothing is left of the guest."""
        self._lab.start(*(daemon.name for daemon in services.ALL))
        if self._subject is not None:
            self._subject.limit(**content.QUOTA)
        self._subject = None
        self._stack.close()

    def _story(self, kind: Kind, subject: NovaSubject) -> Story:
        name, began = f"{kind.name}-{time.time():.0f}", Story(kind.name)
        try:
            since = subject.last_record()
            story = struck(kind, subject, began, name, self._seed, since)
            journal = [record for record in subject.journal() if record["seq"] > since]
            story = replace(
                story,
                met=story.met and kind.said_later in " ".join(errors_in(journal)),
                left_volumes=subject.leaked(),
                open_intents=open_intents(journal),
                errors=errors_in(journal),
            )
            return with_records(story, subject, name, self._seed)
        except FAILURES as error:
            return replace(began, stuck=f"{type(error).__name__}: {error}")


def struck(kind: Kind, subject: NovaSubject, story: Story, name: str, seed: int, since: int) -> Story:
    """From the first record to the rest after the fault; the run begins after the journal's record `since`."""
    subject.guest.check(["elastio", "resume"], timeout_s=90)
    subject.forget_records()
    subject.start_writer(name, seed)
    seen = subject.arm(kind.moment, kill=False)
    if kind.is_early:
        kind.strike(subject)
    subject.burst()
    came = subject.wait_for_moment(seen, MOMENT_S)
    at = time.monotonic()
    if not kind.is_early:
        kind.strike(subject)
    met = not kind.said or subject.wait_for_trouble(kind.said, since, FELT_S)
    doctor = subject.failed_checks().get(kind.check, "") if kind.check else ""
    time.sleep(max(0.0, kind.trigger_delay_s - (time.monotonic() - at)))
    shown = subject.shown() if kind.shown else ()
    kind.mend(subject)
    mended = time.monotonic()
    subject.wait_for_agent()
    subject.wait_for_rest()
    return replace(
        story,
        came=came,
        met=met and kind.is_seen_in(doctor, shown),
        doctor=doctor,
        shown=shown,
        felt=not subject.writer_runs(),
        fault_s=round(mended - at, 1),
        rest_s=round(time.monotonic() - mended, 1),
    )


def with_records(story: Story, subject: NovaSubject, name: str, seed: int) -> Story:
    """Read back every record that the host knows to be acknowledged."""
    subject.stop_writer()
    subject.guest.check(["elastio", "pause"], timeout_s=90)
    found = subject.verify(name, seed, acks.read(subject.records).get(name, 0))
    return replace(story, acknowledged_records=found["checked"], lost_records=found["lost"])


def summary(stories: Sequence[Story]) -> dict[str, Any]:
    """The document of all runs."""
    return {
        "runs": len(stories),
        "acknowledged_records": sum(story.acknowledged_records for story in stories),
        "lost_records": sum(story.lost_records for story in stories),
        "left_volumes": sum(len(story.left_volumes) for story in stories),
        "stuck_runs": sum(bool(story.stuck) for story in stories),
        "worst_rest_s": max((s.rest_s for s in stories if s.rest_s is not None), default=None),
        "sound": bool(stories) and all(story.is_sound for story in stories),
        "stories": [story.as_dict() for story in stories],
    }


def _told(story: Story) -> str:
    if story.stuck:
        return f"  STUCK: {story.stuck.splitlines()[0]}"
    lost = f"{story.lost_records} of {story.acknowledged_records} records lost"
    left = f"{len(story.left_volumes)} volumes left, {len(story.open_intents)} intents open"
    late = "" if story.came and story.met else ", NOT MET as expected"
    return f"  {lost}, {left}, fault of {story.fault_s} s, at rest {story.rest_s} s after it{late}"
