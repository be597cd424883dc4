// Config: every setting of tfhvd, read once from the environment into one immutable value. The only
// getenv of the project is in config.cc.
//
// TFHVD_X is a setting's name; HOROVOD_X is accepted where Horovod has the same setting with the
// same meaning. A name that begins with TFHVD_ and is no setting is reported with the nearest real
// name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/base/log.h"
#include "cc/base/status.h"

namespace tfhvd {

// What carries collectives on host memory.
enum class CpuOperations { kAuto, kShm, kMpi, kHierarchical };

// What carries collectives on GPU memory: NCCL, or the means of the host after a copy there.
enum class GpuOperations { kAuto, kNccl, kHost };

// What becomes of a job whose ranks wait, and in which nothing would end that.
enum class OnHang { kWarn, kAbort };

// What becomes of variables that are updated from gradients of one rank alone.
enum class CheckSync { kError, kWarn, kOff };

// What becomes of variables that differ between ranks which train them together.
enum class OnDivergence { kWarn, kRaise, kHeal };

// What becomes of a step in which a rank's gradients are not finite.
enum class OnNotFinite { kWarn, kRaise, kOff };

// What becomes of a step in which one rank's gradient is out of all proportion.
enum class OnOutlier { kWarn, kSkip, kRaise, kOff };

constexpr int64_t kMostCacheCapacity = 1000000;  // tensors

struct Config {
  int64_t fusion_threshold = 128 << 20;  // bytes
  int64_t alone_bytes = 1 << 20;
  int64_t bucket_bytes = 8 << 20;
  bool autotune = false;
  bool rehearse = true;
  std::string autotune_log;       // a path; "": none
  std::string autotune_file;      // a path; "": one in cache_folder; "none"
  std::string cache_folder;       // the user's, for tfhvd; "": there is none
  double cycle_time = 0.0;        // milliseconds
  int64_t cache_capacity = 1024;  // tensors
  bool stall_check = true;
  double stall_check_time = 60.0;    // seconds
  double stall_shutdown_time = 0.0;  // seconds; 0: never
  OnHang on_hang = OnHang::kWarn;
  double shutdown_timeout = 5.0;  // seconds
  CpuOperations cpu_operations = CpuOperations::kAuto;
  bool float32_across_hosts = false;
  double sparse_density = 1.0;  // rows sent by all ranks over rows of the variable; 0: never dense
  GpuOperations gpu_operations = GpuOperations::kAuto;
  double gpu_init_timeout = 120.0;  // seconds
  bool shared_gpu = false;
  std::string cuda_library = "libcuda.so.1";  // "": no GPUs
  std::string nccl_library = "libnccl.so.2";  // "": no NCCL
  LogLevel log_level = LogLevel::kWarning;
  std::string timeline;  // a path; "": none
  bool timeline_mark_cycles = false;
  CheckSync check_sync = CheckSync::kError;
  int64_t divergence_steps = 100;  // between two comparisons of the ranks' weights; 0: none
  OnDivergence on_divergence = OnDivergence::kWarn;
  OnNotFinite on_not_finite = OnNotFinite::kWarn;
  OnOutlier on_outlier = OnOutlier::kWarn;
  std::string ports;         // "FIRST-LAST"; "": any
  int64_t metrics_port = 0;  // of local rank 0; 0: none
  std::string metrics_address = "127.0.0.1";
  std::string metrics_file;  // a path; "": none
  // TFHVD_TEST_HOST, for tests of tfhvd itself: the host that this process takes itself to be on.
  std::string test_host;
  // TFHVD_TEST_FAILPOINTS, likewise: where processes of the job are to end; see failpoints.h.
  std::string test_failpoints;
  Failpoints failpoints;  // those of them that are this process's, once it knows its number
};

// One row of the table that the documentation is generated from.
struct Setting {
  const char* name;          // without the prefix
  const char* horovod_name;  // nullptr where Horovod has no such setting
  const char* default_text;
  const char* range;
  const char* meaning;  // one sentence
};

const std::vector<Setting>& Settings();

// Reads the environment. A value out of its range is an InvalidArgument that names the variable,
// what it holds and what is expected; names that look like a typing error are appended to
// `warnings`.
Status ReadConfig(Config* config, std::vector<std::string>* warnings);

// The same over given "NAME=value" pairs, for tests.
Status ParseConfig(const std::vector<std::pair<std::string, std::string>>& environment,
                   Config* config, std::vector<std::string>* warnings);

// Whose binary interface an MPI has: MPICH's is also Intel's, MVAPICH's and Cray's.
enum class MpiAbi { kUnknown, kOpenMpi, kMpich };

// What the launcher of this process says of the job, before any peer is met. From the environment
// of mpirun (Open MPI, MPICH), srun with PMIx or PMI, or nothing: one process alone.
struct LaunchHints {
  bool started_by_mpi = false;
  int size = 1;                   // as the launcher says; 1 where it does not say
  std::string launcher;           // "mpirun (Open MPI)", for messages
  MpiAbi mpi = MpiAbi::kUnknown;  // which it belongs to, or most likely expects
  int local_process = -1;  // among the processes it started on this host; -1 where it does not say
  bool open_mpi_on_several_hosts = false;  // as Open MPI's mpirun says
};
LaunchHints ReadLaunchHints();

// Gives this process's environment a value for another library to read, unless it has one.
void SetUnlessSet(const char* name, const char* value);

}  // namespace tfhvd
