"""What this process knows of the job that it takes part in, and how it leaves. No TensorFlow."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfhvd._version import __version__
from tfhvd.errors import InvalidSettingError, NotInitializedError, TfhvdError
from tfhvd.protocol import endpoints, rank_channel
from tfhvd.runtime import builds, failpoints, init_watchdog
from tfhvd.runtime.exit_handler import Departure
from tfhvd.runtime.gpu_selection import choose_gpu
from tfhvd.runtime.mpi_check import check_launcher
from tfhvd.runtime.native import check_installed_tensorflow, installed_nccl, load_native
from tfhvd.system import python_stacks
from tfhvd.telemetry.timeline_file import timeline_file

if TYPE_CHECKING:
    from tfhvd._native import Endpoints, Topology


_logger = logging.getLogger("tfhvd")


class Membership:
    """This process's part in one job after the other, from `join` to `leave`.

    It leaves by itself when the interpreter ends. A child made by fork has no part in the job: the
    engine's thread stays with the parent.

    Attributes:
        topology: this process's place in the job, as the core says it; None where it is in none.
        started_as: the job's ranks, as numbers of the processes that were started; None where they
            are all of them.
        forked: whether this is a child made by fork after `join`.
        is_outside: whether this process has come to an elastic job that was there before it, and
            has not been let in yet. Its topology is the one that it would have.
        rehearses: whether it has an engine of its own alone meanwhile; see `rehearsal`.
        came_later: whether this process was let in to an elastic job that was there before it.
        lets_in_at_commits: whether ranks that come to an elastic job are let in where the program
            commits a state, and nowhere else.
        launcher: where this process says how it comes and goes; None before it has had to.
        endpoints: where ranks meet without an MPI; None where they have one.
        departure: how this process leaves where its program does not say so.
    """

    def __init__(self) -> None:
        self.topology: Topology | None = None
        self.started_as: tuple[int, ...] | None = None
        self.forked = False
        self.is_outside = False
        self.rehearses = False
        self.came_later = False
        self.lets_in_at_commits = False
        self.launcher: rank_channel.Sender | None = None
        self.endpoints: endpoints.Endpoints | None = None
        self._admission = threading.Lock()
        self._identity = ""  # what must be the same on all ranks
        self._at_taking_part: list[Callable[[], None]] = []
        self._at_leaving: list[Callable[[], None]] = []
        self._at_change: list[Callable[[], object]] = []
        self._prepared = False
        self._follower: threading.Thread | None = None
        self.departure = Departure(self)

    def join(self, ranks: tuple[int, ...] | None, watch_address: str = "") -> None:
        """Meets the other ranks of the job; in one that is there already, not before `take_part`.

        Args:
            ranks: which of the processes that were started make up the job; None for all.
            watch_address: where this process answers what its host's ranks do; see host_looks.

        Raises:
            NotInitializedError: in a child made by fork.
            TfhvdError: if the ranks cannot meet, or a setting has a wrong value.
        """
        if self.forked:
            raise NotInitializedError(_FORKED)
        tensorflow = check_installed_tensorflow()
        if "mpi4py" in sys.modules:
            # Whoever uses both must have one MPI in the process: the one that mpi4py chose.
            import mpi4py.MPI  # noqa: F401
        native, since = load_native(), time.monotonic()
        try:
            minor = builds.minor_of(tensorflow)
            with init_watchdog.watched(os.environ):
                native.init(
                    installed_nccl(),
                    list(ranks or ()),
                    __version__,
                    minor,
                    watch_address,
                    self._endpoints_of_all(native),
                    -1 if self.endpoints is None else self.endpoints.members,
                )
        except InvalidSettingError:
            self._prepare_process()  # MPI may have begun, and nobody is lost
            raise
        except NotInitializedError as error:  # the ranks have different versions, and all know it
            self._prepare_process()
            raise TfhvdError(str(error)) from None
        self._identity = f"tfhvd {__version__} for TensorFlow {minor}"
        self.started_as = ranks
        if self.endpoints is not None and self.endpoints.comes_later:
            self._prepare_process()
            place = native.make_topology(self.endpoints.place, list(self.endpoints.hosts))
            self.topology, self.is_outside = place, True
        else:
            self._begin(native, since)
        if "tensorflow" in sys.modules and native.has_gpus():
            choose_gpu(self.require_topology())

    @property
    def is_apart(self) -> bool:
        """Whether this process is outside, and has no engine."""
        return self.is_outside and not self.rehearses

    def take_part(self, trained: int = 0, is_over: Callable[[], bool] = bool) -> None:
        """Waits until this process is let in, where it has come to a job that was there before it.

        Whatever needs the other ranks begins with it, or an engine. In a rehearsal nobody waits.

        Args:
            trained: how many trainings of the program are behind this process.
            is_over: whether it need not wait any more, as the others have come further; then it
                stays outside.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        self.check()
        if not self.is_apart:
            return
        with self._admission:
            if self.is_outside and self._is_let_in(trained, is_over):
                self._begin(load_native(), time.monotonic())
                self.is_outside = False

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[bool]:
        """Gives a process that is outside an engine of its own alone, unless the settings say no.

        What is traced, compiled and loaded then, the others need not wait for. Within another one
        it does nothing. Yields whether there is such an engine.
        """
        place = self.require_topology()
        if not (self.is_apart and load_native().begin_rehearsal(place.rank, place.size)):
            yield self.rehearses
            return
        self.rehearses = True
        try:
            yield True
        finally:
            self.rehearses = False
            load_native().end_rehearsal()

    def _begin(self, native: Any, since: float) -> None:
        """Begins to take part, where all ranks have met but for one that comes later."""
        if self.is_elastic and not self.is_outside:
            self._prepare_process()
            self._is_let_in(0, bool)
        topology = native.topology()
        try:
            if self.started_as is None and self.endpoints is None:
                check_launcher(os.environ, topology.size)
        except RuntimeError as error:
            native.shutdown("")
            raise TfhvdError(str(error)) from None
        self.topology = topology
        if native.generation() <= 0:  # later ones write files of other names
            timeline_file.begin(native.config().timeline, topology.rank, since)
        self._prepare_process()
        if self.launcher is not None:
            self.launcher.takes_part(True)
            self.launcher.show(native.flight_record())
        if self.is_elastic:
            follow = functools.partial(self._follow_members, native)
            self._follower = threading.Thread(target=follow, name="tfhvd-members", daemon=True)
            self._follower.start()
        for begin in self._at_taking_part:
            begin()

    def _is_let_in(self, trained: int, is_over: Callable[[], bool]) -> bool:
        """Tells the launcher that this rank is there; one that comes later waits for the others.

        So does one that was there, if ranks were lost before all had met.
        """
        native = load_native()
        assert self.launcher is not None and self.endpoints is not None
        self.launcher.ready(self._identity, trained)
        failpoints.come_to("ready_said")
        if native.generation() >= 0:
            return True
        while self.wait_outside() == -1:
            # It may have been let in before that was over, and be about to be told.
            if is_over() and self.wait_outside() == -1:
                return False
        if not self.endpoints.addresses:
            self.came_later = True
            failpoints.come_to("admitted")
            self.launcher.joined()
            failpoints.come_to("joined_said")
        return True

    @staticmethod
    def wait_outside(seconds: float = 0.5) -> int:
        """Waits a moment for others to be told of; returns the generation, -1 for none yet.

        To be called while this process is outside. A moment at a time, so that Ctrl-C is heard.
        """
        latest = load_native().wait_for_generation(-1, seconds)
        if latest is None:
            # Nothing has gone wrong, and whoever has started this process ends it now.
            raise SystemExit("tfhvd: the job has ended before this rank was let in")
        return int(latest)

    def _follow_members(self, native: Any) -> None:
        """Keeps the topology that of the ranks that take part."""
        generation = native.generation()
        while (latest := native.wait_for_generation(generation, 1.0)) is not None:
            if latest == generation:
                continue
            if self.topology is None:
                return
            generation = latest
            self.topology = native.topology()
            failpoints.come_to("members_noted")
            if self.launcher is not None:
                self.launcher.show(native.flight_record())
            for told in self._at_change:
                try:
                    told()
                except Exception:
                    _logger.exception("A function of hvd.on_membership_change has failed")

    @property
    def is_elastic(self) -> bool:
        """Whether the job continues where ranks are lost."""
        return self.endpoints is not None and self.endpoints.members >= 0

    def generation(self) -> int:
        """Returns how often ranks were lost without which the job has gone on, or have come."""
        return load_native().generation() if self.topology is not None else 0

    def go_back(self) -> int | None:
        """Has collectives taken again that were refused since a rank was lost.

        To be called where the program goes back to a state that it has kept, on every rank.

        Returns:
            The generation that goes on from there, the same on all ranks; None where none does.
        """
        generation = load_native().go_back(_CHANGE_LIMIT)
        self.refresh()
        return generation

    def admitted(self) -> int:
        """Returns the last generation for which ranks were let in; 0: none, the same on all."""
        return load_native().admitted() if self.topology is not None else 0

    def refresh(self) -> None:
        """Takes note of who is left, where the thread that does so may not have come to it.

        Outside the place stays the one that this process is to have, also in a rehearsal.
        """
        if self.topology is not None and not self.is_outside:
            self.topology = load_native().topology()

    def at_change(self, told: Callable[[], object]) -> None:
        """Has a function called, in a thread of its own, whenever the job continues with others."""
        self._at_change.append(told)

    def _endpoints_of_all(self, native: Any) -> Endpoints:
        self.endpoints = self.endpoints or endpoints.take(os.environ)
        if self.endpoints is None:
            return native.Endpoints()
        of = self.endpoints
        return native.Endpoints(of.rank, list(of.addresses), of.token, of.listener)

    def leave(self, reason: str) -> None:
        """Leaves the job, and tells the other ranks why: "" where the program is done with it."""
        self.topology = None
        self.started_as = None
        self.is_outside = False
        for forget in self._at_leaving:
            forget()
        try:
            load_native().shutdown(reason)
        finally:
            timeline_file.end()
            self._await_follower()
            if self.launcher is not None:
                self.launcher.takes_part(False)

    def _await_follower(self) -> None:
        """Waits for the thread that waits for other members: it is told of the end.

        A thread that comes back from the core while the interpreter ends, aborts the process.
        """
        follower, self._follower = self._follower, None
        if follower is not None and follower is not threading.current_thread():
            follower.join(_FOLLOWER_LIMIT)

    @property
    def is_watched(self) -> bool:
        """Whether tfhvdrun has started this process, and sees whether the job continues."""
        return self.launcher is not None and self.launcher.is_heard

    def at_taking_part(self, begin: Callable[[], None]) -> None:
        """Has a function called whenever the process begins to take part in a job."""
        self._at_taking_part.append(begin)

    def at_leaving(self, forget: Callable[[], None]) -> None:
        """Has a function called whenever the process leaves, for what is of that job alone."""
        self._at_leaving.append(forget)

    def require_topology(self) -> Topology:
        """Returns the topology. Raises NotInitializedError where the process is in no job."""
        if self.topology is None:
            self._hear_what_is_raised()
            raise NotInitializedError(_FORKED if self.forked else _NOT_INITIALIZED)
        return self.topology

    def current_topology(self) -> Topology:
        """Returns the topology of the ranks that take part by now; raises as require_topology.

        After a collective without a lost rank it is the one without that rank, though the thread
        that follows the members may not have run since.
        """
        if self.is_elastic:
            self.refresh()
        return self.require_topology()

    def check(self) -> None:
        """Raises NotInitializedError where the process is in no job."""
        self.require_topology()

    def _prepare_process(self) -> None:
        """Makes ready for its end, and for who looks at it from outside: once."""
        if self._prepared:
            return
        self._prepared = True
        self._hear_what_is_raised()
        python_stacks.answer(load_native().append_uncaught_at)
        self.departure.prepare()

    def _hear_what_is_raised(self) -> None:
        """Has a word with the launcher about exceptions that nobody catches, from now on."""
        if self.launcher is None:
            self.launcher = rank_channel.Sender(os.environ)
            self.departure.hear_what_is_raised()


_FOLLOWER_LIMIT = 5.0  # seconds for a function of the user's that it may be in
_CHANGE_LIMIT = 30.0  # seconds for the members to meet after a collective has failed for a change

_NOT_INITIALIZED = "tfhvd has not been initialized. Call hvd.init() first."
_FORKED = (
    "This process was forked from one that had called hvd.init(), and has no part in the job. Use "
    "tfhvd in the parent, or start the process with multiprocessing.get_context('spawn')."
)
membership = Membership()  # this process's
