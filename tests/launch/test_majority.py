"""Who goes on where a job falls in two, or loses the host of its launcher: never two parts."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, field

import pytest

from tfhvd.launch.errors import UsageError
from tfhvd.launch.failover import successor
from tfhvd.launch.failover.takeover import Handover, Takeover, elsewhere
from tfhvd.launch.options.parse import parse
from tfhvd.launch.state.handover import JoinersState
from tfhvd.launch.state.quorum import Quorum, TakeoverClaim, has_most
from tfhvd.launch.state.rank_state import Ending, Rank
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.shutdown_plan import CUT_OFF, Step, Stopping
from tfhvd.launch.state.supervisor_config import SupervisorConfig, Timeouts
from tfhvd.network import address
from tfhvd.protocol import endpoints, messages


def test_half_goes_on_with_its_supervisor_and_more_than_half_without_one():
    four = Quorum(range(4))
    assert four.holds([0, 1], range(4)) and four.holds([2, 3], range(4))
    assert not four.holds([3], range(4))
    assert has_most([1, 2, 3], range(4)) and not has_most([2, 3], range(4))


def test_ranks_lost_one_after_the_other_count_together_until_the_others_know():
    five = Quorum(range(5))
    version = five.tell([0, 1, 2, 3])
    five.tell([0, 1, 2])
    assert not five.holds([0, 1], [0, 1, 2]), "2, 3 and 4 may have each other"
    for rank in range(4):
        five.knows(rank, version)
    assert five.holds([0, 1], [0, 1, 2]), "3 knows that 4 is lost, as does everybody else"


def test_a_rank_that_has_ended_is_of_no_part():
    five = Quorum(range(5))
    for rank in (2, 3, 4):
        assert five.holds([0, 1], range(5)) == (rank != 2)
        five.ended(rank)
    assert five.holds([0], [0, 1])


@dataclass
class Job:
    """A job that falls in two, as its supervisor and those that are lost to it see it."""

    present: list[int]
    majority: Quorum
    goes_on: bool = True
    lost: set[int] = field(default_factory=set)
    # By rank, the version and the members that it was told last.
    knows: dict[int, tuple[int, list[int]]] = field(default_factory=dict)

    def tell(self, draw: random.Random) -> None:
        """Tells the members of each other; not all hear it, nor is every answer heard."""
        version = self.majority.tell(self.present)
        for rank in self.present:
            if draw.random() < 0.8:
                self.knows[rank] = (version, list(self.present))
                if draw.random() < 0.8:
                    self.majority.knows(rank, version)

    def lose(self, rank: int, *, certain: bool) -> None:
        left = [each for each in self.present if each != rank]
        if certain:
            self.majority.ended(rank)
        else:
            self.lost.add(rank)
        self.goes_on = self.majority.holds(left, self.present)
        self.present = left

    def others_go_on(self) -> bool:
        """Whether those that are lost may, if they all have each other."""
        _, newest = max((self.knows[rank] for rank in self.lost), default=(0, []))
        return has_most(self.lost, newest)


def test_of_two_parts_one_at_most_goes_on():
    went_on = [0, 0]
    for seed in range(20_000):
        draw = random.Random(seed)
        count = draw.randint(2, 7)
        first = list(range(count))
        job = Job(first, Quorum(first), knows=dict.fromkeys(first, (0, first)))
        for _ in range(draw.randint(1, 10)):
            if not job.goes_on or not job.present:
                break
            deed = draw.random()
            if deed < 0.5:
                job.lose(draw.choice(job.present), certain=draw.random() < 0.2)
            elif deed < 0.6:  # others join: they know no older roster
                job.present = [*job.present, count]
                job.knows[count] = (0, [])
                count += 1
                job.tell(draw)
            else:
                job.tell(draw)
        here, there = job.goes_on and bool(job.present), job.others_go_on()
        assert not (here and there), f"seed {seed}: {job}"
        went_on[0] += here
        went_on[1] += there
    assert min(went_on) > 1000, went_on


def test_a_claim_stands_with_more_than_half_once_all_have_come_or_had_time_to():
    claim = TakeoverClaim({1, 2, 3}, 10.0)
    assert claim.stands({1, 2}, range(4), 11.9) is None
    assert claim.stands({1, 2, 3}, range(4), 10.0) is True
    assert claim.stands({1, 2}, range(3), 11.9) is None
    assert claim.stands({1, 2}, range(3), 12.0) is True
    assert claim.stands({1, 2}, range(4), 19.9) is None
    assert claim.stands({1, 2}, range(4), 20.0) is False


def takeover(count: int) -> tuple[Takeover, Handover]:
    """That of a supervisor with a rank here and the others elsewhere, all of which have met."""
    begun = Takeover(SupervisorConfig(count, "secret", Timeouts(1, 1, 1), majority=True), 0.0)
    members = Roster(count, 1)
    for rank in range(count):
        begun.comes(rank, f"h{rank}:{rank}", here=rank == 0, again=False)
        members.ready(rank, "tfhvd 1")
    return begun, Handover(members, ranks={rank: Rank(rank, f"h{rank}") for rank in range(count)})


def told(data: bytes | None) -> tuple[int, list[tuple[int, str]], bytes]:
    assert data is not None
    [(kind, payload)] = messages.Reader().feed(data)
    assert kind == messages.FrameKind.TAKEOVER_STATE
    return successor.read(payload)


def test_agents_are_told_whom_to_follow_as_often_as_that_is_news():
    begun, handover = takeover(3)
    version, order, _ = told(begun.write(lambda: handover))
    assert (version, order) == (1, [(1, "h1:1"), (2, "h2:2")]), "not the rank of this host"
    assert begun.write(lambda: handover) is None
    begun.changed = True
    assert begun.write(lambda: handover) is None
    begun.changed = True
    handover.members.present.remove(1)
    version, order, _ = told(begun.write(lambda: handover))
    assert (version, order) == (2, [(2, "h2:2")])


def test_a_supervisor_goes_on_without_ranks_of_its_own_host_and_without_fewer_than_half():
    begun, handover = takeover(4)
    begun.write(lambda: handover)
    ranks, present = handover.ranks, handover.members.present
    for number, ending, goes_on in (
        (0, Ending(lost=True), True),
        (1, Ending(signal=9), True),
        (2, Ending(lost=True), True),
        (3, Ending(lost=True), False),
    ):
        ranks[number].end(ending, 0.0)
        may = begun.may_lose(ranks[number], ending, ranks.values(), present)
        assert may == goes_on, number
        present.remove(number)


def test_an_estate_on_another_host():
    ranks = {0: Rank(0, "a"), 1: Rank(1, "b", left_at=90.0), 2: Rank(2, "c")}
    ranks[2].end(Ending(code=1), 95.0)
    ending = Stopping([Step(99.0, "ranks", 15)], at=98.0, trouble="it hangs")
    left = Handover(Roster(3, 1), ending, ranks, 4711, JoinersState([(4712, {3})], {3: 97.0}))
    taken = elsewhere(left, 5.0, 3.0)
    assert taken.members is left.members and taken.manager == 0
    assert taken.ranks[1].left_at == 5.0 and taken.ranks[2] == ranks[2]
    assert taken.stopping.at is None and taken.stopping.trouble == "it hangs"
    assert taken.stopping.steps[0] == Step(5.0, "ranks", 15)
    assert taken.joiners.managers == [] and taken.joiners.meet_by == {3: 35.0}


def test_ranks_that_come_to_another_supervisor_may_know_more_than_it_was_left():
    """Rank 3 has joined since, and rank 2 is lost."""
    _, handover = takeover(3)
    config = SupervisorConfig(3, "secret", Timeouts(1, 1, 1), majority=True)
    taken = Takeover(config, 10.0, left=(handover, TakeoverClaim({1, 2}, 10.0)))

    def comes(number: int) -> bool:
        return taken.comes(number, "", here=False, again=True)

    assert comes(1) and comes(3) and not comes(3), "once"
    assert taken.decide([0, 1, 3], 11.9) is None
    assert taken.decide([0, 1, 3], 12.0) is True
    assert taken.overdue(12.0) == {0}
    assert not taken.comes(4, "", here=False, again=True), "it is decided"


def test_a_job_that_is_cut_off_is_not_started_again():
    assert Stopping(signal=15, trouble=CUT_OFF).interrupted
    assert not Stopping(signal=15, trouble="it hangs").interrupted


def test_majority_asks_for_an_elastic_job():
    job = parse(["-np", "4", "--majority", "true"])
    with pytest.raises(UsageError, match="up to 2000 ranks"):
        parse(["-np", "4", "--max-np", "2001", "--majority", "true"])
    assert job.majority and job.elastic and job.transport == "tcp"
    assert not parse(["-np", "4", "--elastic", "true"]).majority


def test_nobody_can_connect_to_an_heir_before_there_is_one():
    heir = successor.Successor(0, endpoints.LOOPBACK, ())
    [at] = address.pairs(heir.addresses)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(at)
