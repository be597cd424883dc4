// tfhvd._native: the process's engine for Python. Thin: no state, no decisions.
//
// Functions that may wait release the interpreter's lock: the engine's thread completes eager
// operations that other Python threads wait for.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/failpoints.h"
#include "cc/base/fingerprint.h"
#include "cc/process/agree_on.h"
#include "cc/process/backend_reports.h"
#include "cc/process/process.h"
#include "cc/process/rendezvous.h"
#include "cc/python/uncaught.h"

namespace py = pybind11;

namespace tfhvd {
namespace {

// The only place where a Status becomes an exception: of tfhvd.errors, by the code's name.
void RaiseIfError(const Status& status) {
  if (status.ok()) return;
  const py::object make = py::module_::import("tfhvd.errors").attr("from_status");
  const py::object error = make(StatusCodeName(status.code()), status.message());
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw py::error_already_set();
}

template <typename Function>
void RunUnlocked(Function function) {
  Status status;
  {
    py::gil_scoped_release release;
    status = function();
  }
  RaiseIfError(status);
}

std::shared_ptr<Engine> RunningEngine() {
  std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) RaiseIfError(NotInitialized());
  return engine;
}

int64_t RunAgreement(Request request) {
  int64_t number = -1;
  RunUnlocked([&] { return AgreeOn(std::move(request), &number); });
  return number;
}

Request JoinOf(int32_t process_set, bool stops) {
  Request request;
  request.kind = Collective::kJoin;
  request.key.process_set = process_set;
  request.stops = stops;
  return request;
}

Request SetOf(Collective kind, const std::vector<int>& ranks) {
  Request request;
  request.kind = kind;
  request.members.assign(ranks.begin(), ranks.end());
  return request;
}

void BindStops(py::module_* m) {
  m->def(
      "request_stop", [] { RunningEngine()->RequestStop(); },
      "Asks all ranks to stop after the same step.");
  m->def(
      "stop_requested",
      [](int32_t process_set) { return RunningEngine()->stop_requested(process_set); },
      py::arg("process_set"),
      "Returns whether a rank has called request_stop, as of the last completed collective.");
}

void BindSettings(py::module_* m) {
  py::enum_<CheckSync>(*m, "CheckSync")
      .value("ERROR", CheckSync::kError)
      .value("WARN", CheckSync::kWarn)
      .value("OFF", CheckSync::kOff);
  py::enum_<OnHang>(*m, "OnHang").value("WARN", OnHang::kWarn).value("ABORT", OnHang::kAbort);
  py::enum_<OnDivergence>(*m, "OnDivergence")
      .value("WARN", OnDivergence::kWarn)
      .value("RAISE", OnDivergence::kRaise)
      .value("HEAL", OnDivergence::kHeal);
  py::enum_<OnNotFinite>(*m, "OnNotFinite")
      .value("WARN", OnNotFinite::kWarn)
      .value("RAISE", OnNotFinite::kRaise)
      .value("OFF", OnNotFinite::kOff);
  py::enum_<OnOutlier>(*m, "OnOutlier")
      .value("WARN", OnOutlier::kWarn)
      .value("SKIP", OnOutlier::kSkip)
      .value("RAISE", OnOutlier::kRaise)
      .value("OFF", OnOutlier::kOff);
  py::class_<Config>(*m, "Config")
      .def_readonly("alone_bytes", &Config::alone_bytes)
      .def_readonly("sparse_density", &Config::sparse_density)
      .def_readonly("stall_check", &Config::stall_check)
      .def_readonly("stall_check_time", &Config::stall_check_time)
      .def_readonly("on_hang", &Config::on_hang)
      .def_readonly("timeline", &Config::timeline)
      .def_readonly("metrics_port", &Config::metrics_port)
      .def_readonly("metrics_address", &Config::metrics_address)
      .def_readonly("metrics_file", &Config::metrics_file)
      .def_readonly("divergence_steps", &Config::divergence_steps)
      .def_readonly("on_divergence", &Config::on_divergence)
      .def_readonly("on_not_finite", &Config::on_not_finite)
      .def_readonly("on_outlier", &Config::on_outlier)
      .def_readonly("check_sync", &Config::check_sync);
  py::class_<Setting>(*m, "Setting")
      .def_property_readonly("name", [](const Setting& s) { return std::string(s.name); })
      .def_property_readonly("horovod_name",
                             [](const Setting& s) -> py::object {
                               if (s.horovod_name == nullptr) return py::none();
                               return py::str(s.horovod_name);
                             })
      .def_property_readonly("default_text",
                             [](const Setting& s) { return std::string(s.default_text); })
      .def_property_readonly("range", [](const Setting& s) { return std::string(s.range); })
      .def_property_readonly("meaning", [](const Setting& s) { return std::string(s.meaning); });
}

void BindTypes(py::module_* m) {
  py::class_<TcpEndpoints>(*m, "Endpoints")
      .def(py::init([](int rank, std::vector<std::string> addresses, std::string token, int fd) {
             return TcpEndpoints{rank, std::move(addresses), std::move(token), fd};
           }),
           py::arg("rank") = 0, py::arg("addresses") = std::vector<std::string>(),
           py::arg("token") = "", py::arg("listener") = -1);
  py::class_<Topology>(*m, "Topology")
      .def_readonly("rank", &Topology::rank)
      .def_readonly("size", &Topology::size)
      .def_readonly("local_rank", &Topology::local_rank)
      .def_readonly("local_size", &Topology::local_size)
      .def_readonly("cross_rank", &Topology::cross_rank)
      .def_readonly("cross_size", &Topology::cross_size)
      .def_readonly("homogeneous", &Topology::homogeneous)
      .def_readonly("hosts", &Topology::hosts)
      .def_readonly("host_of", &Topology::host_of)
      .def_readonly("watch_addresses", &Topology::watch_addresses)
      .def("gpu_of", &GpuOf, py::arg("gpus"));
  py::class_<EngineMetrics>(*m, "EngineMetrics")
      .def_readonly("submitted", &EngineMetrics::submitted)
      .def_readonly("completed", &EngineMetrics::completed)
      .def_readonly("failed", &EngineMetrics::failed)
      .def_readonly("tensors", &EngineMetrics::tensors)
      .def_readonly("bytes", &EngineMetrics::bytes)
      .def_readonly("calls", &EngineMetrics::calls)
      .def_readonly("fused_tensors", &EngineMetrics::fused_tensors)
      .def_readonly("rounds", &EngineMetrics::rounds)
      .def_readonly("locked_rounds", &EngineMetrics::locked_rounds)
      .def_readonly("locked_steps", &EngineMetrics::locked_steps)
      .def_property_readonly("unlocked",
                             [](const EngineMetrics& metrics) {
                               std::map<std::string, int64_t> by_name;
                               for (size_t i = 0; i < kUnlockReasons; ++i) {
                                 const auto reason = static_cast<UnlockReason>(i);
                                 by_name[UnlockReasonName(reason)] = metrics.unlocked[i];
                               }
                               return by_name;
                             })
      .def_readonly("inline_runs", &EngineMetrics::inline_runs)
      .def_readonly("cache_hits", &EngineMetrics::cache_hits)
      .def_readonly("cache_misses", &EngineMetrics::cache_misses)
      .def_readonly("waited", &EngineMetrics::waited)
      .def_readonly("waited_for_unknown", &EngineMetrics::waited_for_unknown);
  py::class_<Rendezvous>(*m, "Rendezvous",
                         "Finds out, without waiting, whether every rank has reached this point.")
      .def(py::init<>(), py::call_guard<py::gil_scoped_release>())
      .def("is_complete", &Rendezvous::IsComplete);
  py::class_<BackendReport>(*m, "BackendReport")
      .def_readonly("name", &BackendReport::name)
      .def_readonly("available", &BackendReport::available)
      .def_readonly("detail", &BackendReport::detail);
}

void BindFingerprint(py::module_* m) {
  m->def(
      "fingerprint",
      [](const py::buffer& bytes) {
        const py::buffer_info info = bytes.request();
        const size_t size = static_cast<size_t>(info.size * info.itemsize);
        py::gil_scoped_release release;
        return Fingerprint(info.ptr, size);
      },
      py::arg("bytes"), "64 bits that tell blocks of bytes apart; of one that is contiguous.");
}

void BindProcessSets(py::module_* m) {
  m->def(
      "add_process_set",
      [](const std::vector<int>& ranks) {
        return RunAgreement(SetOf(Collective::kAddProcessSet, ranks));
      },
      py::arg("ranks"), "Makes a process set, with all ranks of the job; its number.");
  m->def(
      "remove_process_set",
      [](const std::vector<int>& ranks) {
        return RunAgreement(SetOf(Collective::kRemoveProcessSet, ranks));
      },
      py::arg("ranks"), "Removes the process set of these ranks; its number.");
  m->def("process_sets", [] { return RunningEngine()->process_sets().All(); });
}

// The engine's records, for this process and for others.
void BindRecords(py::module_* m) {
  m->def(
      "start_timeline",
      [](const std::string& path, bool mark_cycles) {
        const std::shared_ptr<Engine> engine = RunningEngine();
        RunUnlocked([&] { return engine->telemetry().StartTimeline(path, mark_cycles); });
      },
      py::arg("path"), py::arg("mark_cycles"), "Records the phases of every collective.");
  m->def(
      "stop_timeline",
      [] {
        const std::shared_ptr<Engine> engine = RunningEngine();
        RunUnlocked([&] { return engine->telemetry().StopTimeline(); });
      },
      "Ends the recording, if there is one, and closes its file.");
  m->def(
      "flight_record", [] { return RunningEngine()->telemetry().flight_record(); },
      "Returns the descriptor of the flight record; -1 if there is none.");
  m->def(
      "note_position",
      [](int64_t epoch, int64_t step) { RunningEngine()->telemetry().NotePosition(epoch, step); },
      py::arg("epoch"), py::arg("step"),
      "Records the position of the training in the flight record.");
  m->def(
      "note_watch",
      [](double seconds) {
        const std::chrono::duration<double> lasting(seconds);
        RunningEngine()->telemetry().NoteWatch(
            std::chrono::duration_cast<std::chrono::nanoseconds>(lasting));
      },
      py::arg("seconds"),
      "Records that this process has a hang monitor, which is reliable for so long.");
  m->def("generation", &JobGeneration,
         "Returns how often the members of an elastic job have changed.");
  m->def(
      "wait_for_generation",
      [](int generation, double seconds) {
        py::gil_scoped_release release;
        return WaitForGeneration(generation, seconds);
      },
      py::arg("generation"), py::arg("seconds"),
      "Waits for a later generation and returns the latest; None if none will come.");
  m->def(
      "go_back",
      [](double seconds) {
        py::gil_scoped_release release;
        return RollBackInJob(seconds);
      },
      py::arg("seconds"),
      "Accepts collectives again after a failure, from a saved state; returns the generation.");
  m->def("admitted", &JobAdmitted, "Returns the last generation that admitted waiting ranks.");
  m->def("ranks_waiting", &RanksWaiting, "Returns how many ranks wait for admission.");
  m->def(
      "wait_until_idle",
      [](double seconds) {
        py::gil_scoped_release release;
        return WaitUntilJobIsIdle(seconds);
      },
      py::arg("seconds"), "Waits until no collective is pending; returns whether none is.");
  m->def(
      "append_uncaught_at",
      [](int signal, int file) {
        errno = AppendUncaughtAt(signal, file);
        if (errno == 0) return;
        PyErr_SetFromErrno(PyExc_OSError);
        throw py::error_already_set();
      },
      py::arg("signal"), py::arg("file"),
      "Makes each such signal append the main thread's uncaught exception to a file.");
  m->def(
      "metrics", [] { return RunningEngine()->telemetry().metrics(); },
      "Returns counts of the engine's work so far.");
}

void BindFailpoints(py::module_* m) {
  m->def(
      "failpoints",
      [] {
        std::map<std::string, std::string> meanings;
        for (const FailpointRow& row : AllFailpoints()) meanings[row.name] = row.meaning;
        return meanings;
      },
      "Returns the failpoints (cc/base/failpoints.h) and what a process does at each.");
  m->def(
      "pass_failpoint",
      [](const std::string& name) {
        const FailpointRow* const row = FindFailpoint(name);
        if (row == nullptr) throw py::key_error(name);
        PassFailpoint(row->point);
      },
      py::arg("name"), "Hits the failpoint of this name.");
}

}  // namespace

PYBIND11_MODULE(_native, m) {
  m.doc() = "The process's engine. Use the functions of tfhvd instead.";
  BindSettings(&m);
  BindTypes(&m);
  BindFingerprint(&m);
  BindProcessSets(&m);
  BindRecords(&m);
  BindFailpoints(&m);
  m.def(
      "init",
      [](const std::string& nccl, const std::vector<int>& ranks, const std::string& version,
         const std::string& tensorflow, const std::string& watch_address,
         const TcpEndpoints& endpoints, int membership) {
        RunUnlocked([&] {
          return InitProcess(nccl, ranks, {{version, tensorflow}, watch_address}, endpoints,
                             membership);
        });
      },
      py::arg("installed_nccl"), py::arg("ranks"), py::arg("version"), py::arg("tensorflow"),
      py::arg("watch_address"), py::arg("endpoints"), py::arg("membership"),
      "Connects the peers and starts the engine.");
  m.def(
      "begin_rehearsal",
      [](int rank, int size) {
        bool begun = false;
        RunUnlocked([&] { return BeginRehearsal({rank, size}, &begun); });
        return begun;
      },
      py::arg("rank"), py::arg("size"),
      "Gives a process that waits to join an engine to warm up with; returns whether it does.");
  m.def("end_rehearsal", &EndRehearsal, py::call_guard<py::gil_scoped_release>(),
        "Ends the warm-up when none of its collectives is pending.");
  m.def("make_topology", &MakeTopology, py::arg("rank"), py::arg("hosts"),
        "Returns the topology of a rank among ranks on these hosts, which are given by rank.");
  m.def(
      "shutdown",
      [](const std::string& reason) { RunUnlocked([&] { return ShutdownProcess(reason); }); },
      py::arg("reason"), "Leaves the job; raises if some ranks did not acknowledge the reason.");
  m.def(
      "finalize",
      [] {
        bool ended = false;
        RunUnlocked([&] { return FinalizeProcess(&ended); });
        return ended;
      },
      "Ends the transport between processes; returns whether it did: not after a failed job.");
  m.def("is_initialized", [] { return ProcessEngine() != nullptr; });
  m.def("topology", [] { return RunningEngine()->topology(); });
  m.def(
      "check_health", [] { RaiseIfError(RunningEngine()->health()); },
      "Raises if the engine takes no more entries.");
  m.def(
      "is_cut_short",
      [] {
        const std::shared_ptr<Engine> engine = ProcessEngine();
        return engine == nullptr || engine->cut_short();
      },
      "Returns whether the job ends here, or has ended, because another rank has failed or left.");
  m.def(
      "join",
      [](int32_t process_set, bool stops) { return RunAgreement(JoinOf(process_set, stops)); },
      py::arg("process_set") = 0, py::arg("stops") = false,
      "Waits until every rank of the set has joined; returns the last one.");
  m.def(
      "stop_asked", [](int32_t process_set) { return RunningEngine()->stop_asked(process_set); },
      py::arg("process_set"), "Returns whether a rank that has joined asks the others to stop.");
  BindStops(&m);
  m.def("settings", [] { return Settings(); });
  m.def(
      "config", [] { return RunningEngine()->config(); },
      "Returns the job's settings: rank 0's if ranks must not differ.");
  m.def("has_gpus", &HasGpus, "Returns whether this process has a GPU.");
  m.def("report_backends", &ReportBackends, py::arg("installed_nccl"));
}

}  // namespace tfhvd
