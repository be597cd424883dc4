"""Membership: how this process joins a job, takes part in it and leaves it. No TensorFlow."""

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
    """The part of this process in its jobs, each from `join` to `leave`.

    The process leaves by itself when the interpreter ends. A forked child has no part in the job,
    because the engine's thread stays in the parent.

    Attributes:
        topology: the place of this process in the job, from the core; None outside a job.
        started_as: the ranks of the job, as numbers of the started processes; None for all of them.
        forked: whether this process is a child that was forked after `join`.
        is_outside: whether this process wants to join a running elastic job, and the others have
            not admitted it yet. Its topology is then the one that it will have.
        rehearses: whether it has an engine without other ranks meanwhile; see `rehearsal`.
        came_later: whether this process has joined an elastic job that ran before.
        lets_in_at_commits: whether the job admits ranks only when the program commits a state.
        launcher: sends to the launcher; None before the first message.
        endpoints: the addresses at which ranks meet without an MPI; None with an MPI.
        departure: how this process leaves if its program does not call `shutdown`.
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
        self._identity = ""  # must be equal on all ranks
        self._at_taking_part: list[Callable[[], None]] = []
        self._at_leaving: list[Callable[[], None]] = []
        self._at_change: list[Callable[[], object]] = []
        self._prepared = False
        self._follower: threading.Thread | None = None
        self.departure = Departure(self)

    def join(self, ranks: tuple[int, ...] | None, watch_address: str = "") -> None:
        """Connects to the other ranks of the job; in a running job, `take_part` does this later.

        Args:
            ranks: the started processes that make up the job; None for all.
            watch_address: at which this process answers questions about the ranks of its host.

        Raises:
            NotInitializedError: in a forked child.
            TfhvdError: if the ranks cannot connect, or a setting has a wrong value.
        """
        if self.forked:
            raise NotInitializedError(_FORKED)
        tensorflow = check_installed_tensorflow()
        if "mpi4py" in sys.modules:
            # A process can have one MPI only: the one that mpi4py has chosen.
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
            self._prepare_process()  # MPI may have started, and no rank has failed
            raise
        except NotInitializedError as error:  # all ranks know that their versions differ
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
        """Whether this process is outside the job, and has no engine."""
        return self.is_outside and not self.rehearses

    def take_part(self, trained: int = 0, is_over: Callable[[], bool] = bool) -> None:
        """Waits until the others admit this process, if it is joining a running job.

        Every function that needs other ranks or an engine calls it first. It returns at once during
        a warm-up.

        Args:
            trained: how many trainings of the program this process has finished.
            is_over: returns whether this process need not wait any longer, because the others are
                ahead; it then stays outside.

        Raises:
            NotInitializedError: if the process is in no job.
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
        """Gives a joining process an engine without other ranks, unless the settings forbid it.

        The process traces, compiles and loads with this engine, so that the others need not wait
        later. Nested calls do nothing. Yields whether there is such an engine.
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
        """Begins to take part: all ranks are connected, except for ranks that join later."""
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
        if native.generation() <= 0:  # later generations write files with other names
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
        """Tells the launcher that this rank is ready; a joining rank waits for its admission.

        A rank of the start waits, too, if ranks have failed before all were connected.
        """
        native = load_native()
        assert self.launcher is not None and self.endpoints is not None
        self.launcher.ready(self._identity, trained)
        failpoints.come_to("ready_said")
        if native.generation() >= 0:
            return True
        while self.wait_outside() == -1:
            # The others may have admitted it before, and the message may be on its way.
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
        """Waits a moment for the admission; returns the generation, -1 without one.

        Call it while this process is outside. It waits for short times, so that Ctrl-C works.
        """
        latest = load_native().wait_for_generation(-1, seconds)
        if latest is None:
            # Nothing has gone wrong: the launcher ends this process now.
            raise SystemExit("tfhvd: the job has ended before this rank was let in")
        return int(latest)

    def _follow_members(self, native: Any) -> None:
        """Updates the topology when the members change."""
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
        """Whether the job continues when ranks fail."""
        return self.endpoints is not None and self.endpoints.members >= 0

    def generation(self) -> int:
        """Returns how often the members have changed, because ranks have failed or joined."""
        return load_native().generation() if self.topology is not None else 0

    def go_back(self) -> int | None:
        """Accepts collectives again, which were refused since a rank has failed.

        Every rank calls it when the program goes back to a saved state.

        Returns:
            The generation that continues from there, the same on all ranks; None without one.
        """
        generation = load_native().go_back(_CHANGE_LIMIT)
        self.refresh()
        return generation

    def admitted(self) -> int:
        """Returns the last generation that admitted ranks, the same on all ranks; 0 for none."""
        return load_native().admitted() if self.topology is not None else 0

    def refresh(self) -> None:
        """Updates the topology at once; the thread that does so may not have run yet.

        Outside the job, and in a warm-up, the topology stays the one that this process will have.
        """
        if self.topology is not None and not self.is_outside:
            self.topology = load_native().topology()

    def at_change(self, told: Callable[[], object]) -> None:
        """Registers a function that another thread calls when the members have changed."""
        self._at_change.append(told)

    def _endpoints_of_all(self, native: Any) -> Endpoints:
        self.endpoints = self.endpoints or endpoints.take(os.environ)
        if self.endpoints is None:
            return native.Endpoints()
        of = self.endpoints
        return native.Endpoints(of.rank, list(of.addresses), of.token, of.listener)

    def leave(self, reason: str) -> None:
        """Leaves the job, and tells the other ranks why: "" if the program has finished."""
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
        """Waits for the thread that follows the members; the core has told it of the end.

        A thread that returns from the core while the interpreter ends would abort the process.
        """
        follower, self._follower = self._follower, None
        if follower is not None and follower is not threading.current_thread():
            follower.join(_FOLLOWER_LIMIT)

    @property
    def is_watched(self) -> bool:
        """Whether tfhvdrun has started this process and watches whether the job continues."""
        return self.launcher is not None and self.launcher.is_heard

    def at_taking_part(self, begin: Callable[[], None]) -> None:
        """Registers a function that is called when the process begins to take part in a job."""
        self._at_taking_part.append(begin)

    def at_leaving(self, forget: Callable[[], None]) -> None:
        """Registers a function that drops the state of a job; it is called when the job ends."""
        self._at_leaving.append(forget)

    def require_topology(self) -> Topology:
        """Returns the topology. Raises NotInitializedError if the process is in no job."""
        if self.topology is None:
            self._hear_what_is_raised()
            raise NotInitializedError(_FORKED if self.forked else _NOT_INITIALIZED)
        return self.topology

    def current_topology(self) -> Topology:
        """Returns the topology of the present members; raises as `require_topology`.

        After a collective without a failed rank, this topology does not contain the failed rank,
        even if the thread that follows the members has not run since.
        """
        if self.is_elastic:
            self.refresh()
        return self.require_topology()

    def check(self) -> None:
        """Raises NotInitializedError if the process is in no job."""
        self.require_topology()

    def _prepare_process(self) -> None:
        """Installs handlers, once: for the end of the process, and for questions from outside."""
        if self._prepared:
            return
        self._prepared = True
        self._hear_what_is_raised()
        python_stacks.answer(load_native().append_uncaught_at)
        self.departure.prepare()

    def _hear_what_is_raised(self) -> None:
        """Reports uncaught exceptions to the launcher from now on."""
        if self.launcher is None:
            self.launcher = rank_channel.Sender(os.environ)
            self.departure.hear_what_is_raised()


_FOLLOWER_LIMIT = 5.0  # seconds; the thread may be in a function of the user
_CHANGE_LIMIT = 30.0  # seconds for the members to connect after a change has failed a collective

_NOT_INITIALIZED = "tfhvd has not been initialized. Call hvd.init() first."
_FORKED = (
    "This process was forked from one that had called hvd.init(), and has no part in the job. Use "
    "tfhvd in the parent, or start the process with multiprocessing.get_context('spawn')."
)
membership = Membership()  # of this process
