// Config: every setting of tfhvd, read once from the environment into one immutable value. The only
// getenv of the project is in config.cc.
//
// TFHVD_X is the name of a setting. HOROVOD_X is accepted if Horovod has the same setting with the
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

// The transport of collectives on host memory.
enum class CpuOperations { kAuto, kShm, kMpi, kHierarchical };

// The transport of collectives on GPU memory: NCCL, or a copy to the host and its transport.
enum class GpuOperations { kAuto, kNccl, kHost };

// The reaction to a hang: the ranks wait and nothing would end that.
enum class OnHang { kWarn, kAbort };

// The reaction to variables that are updated from the gradients of one rank only.
enum class CheckSync { kError, kWarn, kOff };

// The reaction to differences between ranks in variables that they train together.
enum class OnDivergence { kWarn, kRaise, kHeal };

// The reaction to a step in which a rank's gradients are not finite.
enum class OnNotFinite { kWarn, kRaise, kOff };

// The reaction to a step in which one rank's gradient is an outlier.
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
  std::string cache_folder;       // the user's cache folder for tfhvd; "": there is none
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
  // TFHVD_TEST_HOST, for tests of tfhvd itself: the host that this process pretends to be on.
  std::string test_host;
  // TFHVD_TEST_FAILPOINTS, for tests of tfhvd itself: where processes of the job end; see
  // failpoints.h.
  std::string test_failpoints;
  Failpoints failpoints;  // those of this process, set once it knows its number
};

// One row of the table that the documentation is generated from.
struct Setting {
  const char* name;          // without the prefix
  const char* horovod_name;  // nullptr if Horovod has no such setting
  const char* default_text;
  const char* range;
  const char* meaning;  // one sentence
};

const std::vector<Setting>& Settings();

// Reads the environment. A value out of its range gives InvalidArgument with the variable, its
// value and the expected values. Appends names that look like a typing error to `warnings`.
Status ReadConfig(Config* config, std::vector<std::string>* warnings);

// Reads the given "NAME=value" pairs instead, for tests.
Status ParseConfig(const std::vector<std::pair<std::string, std::string>>& environment,
                   Config* config, std::vector<std::string>* warnings);

// The binary interface of an MPI: MPICH's is also that of Intel MPI, MVAPICH and Cray MPICH.
enum class MpiAbi { kUnknown, kOpenMpi, kMpich };

// What the launcher of this process says about the job, before any peer is reached. From the
// environment of mpirun (Open MPI, MPICH) or of srun with PMIx or PMI; without one of them, a
// single process.
struct LaunchHints {
  bool started_by_mpi = false;
  int size = 1;                   // 1 if the launcher does not say
  std::string launcher;           // "mpirun (Open MPI)", for messages
  MpiAbi mpi = MpiAbi::kUnknown;  // the MPI of the launcher, or the one that it most likely expects
  int local_process = -1;         // index among the launcher's processes on this host; -1: unknown
  bool open_mpi_on_several_hosts = false;  // only Open MPI's mpirun tells
};
LaunchHints ReadLaunchHints();

// Sets a variable in this process's environment for another library to read, unless it is set
// already.
void SetUnlessSet(const char* name, const char* value);

}  // namespace tfhvd
