#include "cc/base/config.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "cc/base/edit_distance.h"
#include "cc/base/parse.h"

extern "C" char** environ;

namespace tfhvd {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr double kMostBytes = 1099511627776.0;  // 2^40

// Reads one value into the config; false if the text is no such value or out of range.
using Reader = std::function<bool(const std::string& text, Config* config)>;

Reader Integer(int64_t Config::* field, double most) {
  return [field, most](const std::string& text, Config* config) {
    double v;
    if (!ParseNumber(text, 0, most, &v) || v != static_cast<double>(static_cast<int64_t>(v))) {
      return false;
    }
    config->*field = static_cast<int64_t>(v);
    return true;
  };
}

Reader Real(double Config::* field, double most) {
  return [field, most](const std::string& text, Config* config) {
    return ParseNumber(text, 0, most, &(config->*field));
  };
}

bool IsSwitch(const std::string& text, Config*) { return text == "0" || text == "1"; }

Reader Switch(bool Config::* field) {
  return [field](const std::string& text, Config* config) {
    config->*field = text == "1";
    return IsSwitch(text, config);
  };
}

// The names of an enumeration's values, in their order.
template <typename Enum>
Reader Choices(Enum Config::* field, const std::vector<std::string>& names) {
  return [field, names](const std::string& text, Config* config) {
    const int choice = Choice(text, names);
    if (choice >= 0) config->*field = static_cast<Enum>(choice);
    return choice >= 0;
  };
}

Reader Text(std::string Config::* field) {
  return [field](const std::string& text, Config* config) {
    config->*field = text;
    return true;
  };
}

bool ReadPorts(const std::string& text, Config* config) {
  config->ports = text;
  return IsRangeOfPorts(text);
}

bool ReadStallCheckDisable(const std::string& text, Config* config) {
  config->stall_check = text == "0";
  return IsSwitch(text, config);
}

// Horovod wants DYNAMIC if a program will call start_timeline; here a program always may.
bool ReadTimeline(const std::string& text, Config* config) {
  config->timeline = text == "DYNAMIC" ? "" : text;
  return true;
}

struct Row {
  Setting setting;
  Reader read;
};

// How tensors are fused.
std::vector<Row> RowsOfFusion() {
  return {
      {{"FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD", "134217728", "0 to 2^40 bytes",
        "Tensors of one type and operation are reduced together up to this many bytes; 0 reduces "
        "each alone."},
       Integer(&Config::fusion_threshold, kMostBytes)},
      {{"ALONE_BYTES", nullptr, "1048576", "0 to 2^40 bytes",
        "A tensor of at least so many bytes is reduced alone, in place: to copy it together with "
        "others costs more than a separate call. On a GPU, 16 times as many. Rank 0's value "
        "counts."},
       Integer(&Config::alone_bytes, kMostBytes)},
      {{"BUCKET_BYTES", nullptr, "8388608", "0 to 2^40 bytes",
        "A step that repeats is cut into buckets, each of which travels once all of it is there; a "
        "bucket takes no more once it has so many bytes. On a GPU, three times as many; for "
        "tensors in the memory of several hosts, a quarter. Rank 0's value counts."},
       Integer(&Config::bucket_bytes, kMostBytes)},
      {{"AUTOTUNE", "HOROVOD_AUTOTUNE", "0", "0 or 1",
        "1 finds better values for the three settings above, by trying others for some steps in "
        "turn; a value is kept only if it is faster beyond doubt."},
       Switch(&Config::autotune)},
      {{"AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG", "", "a path, or nothing",
        "The file in which rank 0 writes all comparisons, as comma-separated values."},
       Text(&Config::autotune_log)},
      {{"AUTOTUNE_FILE", nullptr, "", "a path, none, or nothing",
        "The file in which rank 0 keeps the best settings for the next job with this step on "
        "such a machine; nothing: tfhvd/autotune in $XDG_CACHE_HOME or ~/.cache; none: nowhere."},
       Text(&Config::autotune_file)},
      {{"CYCLE_TIME", "HOROVOD_CYCLE_TIME", "0", "0 to 1000 milliseconds",
        "How long a tensor that is ready on every rank may wait for others to be fused with; 0: "
        "not at all. Locked steps never wait."},
       Real(&Config::cycle_time, 1000.0)},
      {{"CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY", "1024", "0 to 1000000 tensors",
        "How many tensors can have a number, which is sent instead of the name. A step that "
        "repeats needs no negotiation if all its tensors have numbers; 0 always sends names."},
       Integer(&Config::cache_capacity, kMostCacheCapacity)},
  };
}

// How the job works: stalls, transports, GPUs, ...
std::vector<Row> RowsOfWork() {
  return {
      {{"STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_DISABLE", "0", "0 or 1",
        "1 switches off the report of tensors that some ranks wait for and others have not "
        "submitted."},
       ReadStallCheckDisable},
      {{"STALL_CHECK_TIME_SECONDS", "HOROVOD_STALL_CHECK_TIME_SECONDS", "60", "0.1 to 10^6 seconds",
        "A tensor that waits this long for some rank is reported, with the missing ranks."},
       [](const std::string& text, Config* config) {
         return ParseNumber(text, 0.1, 1e6, &config->stall_check_time);
       }},
      {{"STALL_SHUTDOWN_TIME_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0",
        "0 to 10^6 seconds",
        "A tensor that waits this long for some rank fails with an error on the ranks that wait, "
        "also in the middle of a collective; 0: never."},
       Real(&Config::stall_shutdown_time, 1e6)},
      {{"ON_HANG", nullptr, "warn", "warn or abort",
        "The action if ranks wait for a rank that does nothing that would end their wait: a "
        "warning that names this rank, its line and the cause; abort also ends the job, and does "
        "so in hvd.init(), too."},
       Choices(&Config::on_hang, {"warn", "abort"})},
      {{"SHUTDOWN_TIMEOUT_SECONDS", nullptr, "5", "0 to 3600 seconds",
        "How long a rank that leaves because of an error waits for the others to acknowledge that "
        "before it ends."},
       Real(&Config::shutdown_timeout, 3600.0)},
      {{"REHEARSE", nullptr, "1", "0 or 1",
        "1: a rank that joins an elastic job makes a step by itself before the others admit it, so "
        "that they need not wait until it has traced and compiled the step."},
       Switch(&Config::rehearse)},
      {{"CPU_OPERATIONS", nullptr, "auto", "auto, shm, mpi or hierarchical",
        "What carries collectives on host memory. shm: shared memory, with all ranks on one host; "
        "mpi: MPI; hierarchical: shared memory within each host and MPI across hosts; auto: the "
        "fastest of these that works. Rank 0's value counts."},
       Choices(&Config::cpu_operations, {"auto", "shm", "mpi", "hierarchical"})},
      {{"FLOAT32_ACROSS_HOSTS", nullptr, "0", "0 or 1",
        "1 sends what each host has added up of float16 and bfloat16 to the others as float32, so "
        "that a sum is rounded once: half as much again to send. Rank 0's value counts."},
       Switch(&Config::float32_across_hosts)},
      {{"SPARSE_DENSITY", nullptr, "1", "0 to 10^6",
        "IndexedSlices gradients are sent as whole tensors if all ranks together send at least "
        "this many times the rows of the variable; 0: never. Rank 0's value counts."},
       Real(&Config::sparse_density, 1e6)},
      {{"GPU_OPERATIONS", nullptr, "auto", "auto, nccl or host",
        "What carries collectives on GPU memory. nccl: NCCL; host: copies to the host, and the "
        "backend for host memory; auto: NCCL if every rank has it."},
       Choices(&Config::gpu_operations, {"auto", "nccl", "host"})},
      {{"GPU_INIT_TIMEOUT_SECONDS", nullptr, "120", "1 to 86400 seconds",
        "How long ranks try to meet through NCCL before that is an error."},
       [](const std::string& text, Config* config) {
         return ParseNumber(text, 1.0, 86400.0, &config->gpu_init_timeout);
       }},
      {{"SHARED_GPU", nullptr, "0", "0 or 1",
        "1 lets several ranks use one GPU through NCCL, which must be set up for it "
        "(NCCL_MULTI_RANK_GPU_ENABLE=1 from NCCL 2.30.3 on)."},
       Switch(&Config::shared_gpu)},
      {{"CUDA_LIBRARY", nullptr, "libcuda.so.1", "a path, a name, or nothing",
        "The GPU driver's library; nothing means that there are no GPUs."},
       Text(&Config::cuda_library)},
      {{"NCCL_LIBRARY", nullptr, "libnccl.so.2", "a path, a name, or nothing",
        "NCCL's library; a name means the one that TensorFlow has loaded, or the wheel's; nothing "
        "means that there is none."},
       Text(&Config::nccl_library)},
  };
}

// What the job reports and checks.
std::vector<Row> RowsOfReports() {
  return {
      {{"LOG_LEVEL", "HOROVOD_LOG_LEVEL", "warning", "trace, debug, info, warning, error or fatal",
        "The least severe kind of message that is printed."},
       Choices(&Config::log_level, {"trace", "debug", "info", "warning", "error", "fatal"})},
      {{"TIMELINE", "HOROVOD_TIMELINE", "", "a path, DYNAMIC, or nothing",
        "The file for rank 0's timeline from init on; with {rank} each rank writes its own file; "
        "nothing, or DYNAMIC: none until hvd.start_timeline."},
       ReadTimeline},
      {{"TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "0 or 1",
        "1 marks in that timeline where collectives that were agreed on together begin."},
       Switch(&Config::timeline_mark_cycles)},
      {{"CHECK_SYNC", nullptr, "error", "error, warn or off",
        "What happens if several ranks train and the first step updates variables from gradients "
        "of one rank alone: an error, a warning, or nothing. off compares no data either."},
       Choices(&Config::check_sync, {"error", "warn", "off"})},
      {{"DIVERGENCE_STEPS", nullptr, "100", "0 to 10^9 steps",
        "After so many steps of fit the ranks compare their weights, which should be equal; 0: "
        "never."},
       Integer(&Config::divergence_steps, 1e9)},
      {{"ON_DIVERGENCE", nullptr, "warn", "warn, raise or heal",
        "The action if their weights differ: a warning, an error, or a warning after which all "
        "ranks take over the weights of most ranks (of two ranks, the first one's)."},
       Choices(&Config::on_divergence, {"warn", "raise", "heal"})},
      {{"ON_NOT_FINITE", nullptr, "warn", "warn, raise or off",
        "What happens in a step in which gradients of a rank are NaN or infinite: a warning that "
        "names the rank and the variable, an error on all ranks, or nothing, not even a look."},
       Choices(&Config::on_not_finite, {"warn", "raise", "off"})},
      {{"ON_OUTLIER", nullptr, "warn", "warn, skip, raise or off",
        "What happens in a step in which one rank's gradient is finite, but far too large: a "
        "warning; that, and gradients of zeros; an error on all ranks; or nothing."},
       Choices(&Config::on_outlier, {"warn", "skip", "raise", "off"})},
      {{"PORTS", nullptr, "", "FIRST-LAST, or nothing",
        "The ports, as in 20000-20100, that what listens for other hosts takes its own from; "
        "nothing: any that is free. tfhvdrun --ports sets it."},
       ReadPorts},
      {{"ENCRYPT", nullptr, "0", "0 or 1",
        "1 encrypts what tfhvdrun, its workers and tools say to each other; so does --encrypt."},
       IsSwitch},
      {{"METRICS_PORT", nullptr, "0", "0 to 65535",
        "Every rank serves its metrics to Prometheus on this port plus its local rank; 0: none."},
       Integer(&Config::metrics_port, 65535.0)},
      {{"METRICS_ADDRESS", nullptr, "127.0.0.1", "an address of this host",
        "The address of that port: by default only programs on this host can connect; with "
        "0.0.0.0, or :: with IPv6, every program that reaches this host can."},
       Text(&Config::metrics_address)},
      {{"METRICS_FILE", nullptr, "", "a path, or nothing",
        "The file in which rank 0 writes its metrics every 15 seconds, in Prometheus' text format; "
        "with {rank} each rank writes one."},
       Text(&Config::metrics_file)},
  };
}

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> all = RowsOfFusion();
    for (const Row& row : RowsOfWork()) all.push_back(row);
    for (const Row& row : RowsOfReports()) all.push_back(row);
    return all;
  }();
  return rows;
}

// Names that are no settings but begin with TFHVD_: those of the launcher and of the tests.
bool IsKnownElsewhere(const std::string& name) {
  static const char* const kPrefixes[] = {"TFHVD_LAUNCH_", "TFHVD_RESTART_COUNT", "TFHVD_TEST_",
                                          "TFHVD_FAKE_"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](const char* p) { return name.compare(0, std::strlen(p), p) == 0; });
}

std::string Meant(const std::string& name, const std::string& nearest) {
  return name + " is not a setting of tfhvd and has no effect. Did you mean " + nearest + "?";
}

std::string UnknownName(const std::string& name) {
  const std::string own = name.substr(6);  // after "TFHVD_"
  const auto is_nearer = [&](const Row& one, const Row& other) {
    return EditDistance(own, one.setting.name) < EditDistance(own, other.setting.name);
  };
  const auto nearest = std::min_element(Rows().begin(), Rows().end(), is_nearer);
  return Meant(name, std::string("TFHVD_") + nearest->setting.name);
}

// Returns the setting of Horovod that a name differs from by a character or two; "" if there is
// none. tfhvd ignores Horovod's other variables.
std::string MisspeltName(const std::string& name) {
  const char* nearest = nullptr;
  size_t least = 3;  // edits: too many for an error of typing
  for (const Row& row : Rows()) {
    if (row.setting.horovod_name == nullptr) continue;
    const size_t distance = EditDistance(name, row.setting.horovod_name);
    if (distance >= least) continue;
    nearest = row.setting.horovod_name;
    least = distance;
  }
  return nearest == nullptr || least == 0 ? "" : Meant(name, nearest);
}

const std::string* Find(const Pairs& environment, const std::string& name) {
  for (const auto& [key, value] : environment) {
    if (key == name) return &value;
  }
  return nullptr;
}

// Follows the XDG Base Directory Specification.
std::string CacheFolder(const Pairs& environment) {
  const std::string* const cache = Find(environment, "XDG_CACHE_HOME");
  if (cache != nullptr && !cache->empty() && cache->front() == '/') return *cache + "/tfhvd";
  const std::string* const home = Find(environment, "HOME");
  return home == nullptr || home->empty() ? "" : *home + "/.cache/tfhvd";
}

}  // namespace

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all;
    for (const Row& row : Rows()) all.push_back(row.setting);
    return all;
  }();
  return settings;
}

Status ParseConfig(const Pairs& environment, Config* config, std::vector<std::string>* warnings) {
  config->cache_folder = CacheFolder(environment);
  for (const Row& row : Rows()) {
    std::string name = std::string("TFHVD_") + row.setting.name;
    const std::string* value = Find(environment, name);
    if (value == nullptr && row.setting.horovod_name != nullptr) {
      name = row.setting.horovod_name;
      value = Find(environment, name);
    }
    if (value == nullptr) continue;
    if (!row.read(*value, config)) {
      return Status::InvalidArgument("The environment variable " + name +
                                     " has a value that tfhvd cannot use. Received: '" + *value +
                                     "'. Expected: " + row.setting.range + ".");
    }
  }
  if (const std::string* host = Find(environment, "TFHVD_TEST_HOST")) config->test_host = *host;
  if (const auto* at = Find(environment, "TFHVD_TEST_FAILPOINTS")) config->test_failpoints = *at;
  for (const auto& variable : environment) {
    const std::string& name = variable.first;
    if (name.compare(0, 8, "HOROVOD_") == 0) {
      const std::string misspelt = MisspeltName(name);
      if (!misspelt.empty()) warnings->push_back(misspelt);
    }
    if (name.compare(0, 6, "TFHVD_") != 0 || IsKnownElsewhere(name)) continue;
    const bool known = std::any_of(Rows().begin(), Rows().end(), [&](const Row& row) {
      return name.compare(6, std::string::npos, row.setting.name) == 0;
    });
    if (!known) warnings->push_back(UnknownName(name));
  }
  return Status::Ok();
}

Status ReadConfig(Config* config, std::vector<std::string>* warnings) {
  Pairs pairs;
  for (char** e = environ; *e != nullptr; ++e) {
    const char* equals = std::strchr(*e, '=');
    if (equals == nullptr) continue;
    pairs.emplace_back(std::string(*e, static_cast<size_t>(equals - *e)), equals + 1);
  }
  return ParseConfig(pairs, config, warnings);
}

void SetUnlessSet(const char* name, const char* value) { setenv(name, value, /*overwrite=*/0); }

LaunchHints ReadLaunchHints() {
  struct Launcher {
    const char* job;  // set if this launcher started the process
    const char* size;
    const char* local_process;
    const char* name;
    MpiAbi mpi;
  };
  static const Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
       "mpirun (Open MPI)", MpiAbi::kOpenMpi},
      {"PMI_SIZE", "PMI_SIZE", "MPI_LOCALRANKID", "mpiexec (MPICH or srun with PMI)",
       MpiAbi::kMpich},
      {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
       "mpirun (MVAPICH)", MpiAbi::kMpich},
      {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "srun (PMIx)", MpiAbi::kOpenMpi}};
  const auto number = [](const char* variable, int otherwise) {
    const char* const value = std::getenv(variable);
    return value != nullptr ? std::atoi(value) : otherwise;
  };
  for (const Launcher& s : kLaunchers) {
    if (std::getenv(s.job) == nullptr) continue;
    LaunchHints hints;
    hints.started_by_mpi = true;
    hints.size = std::max(1, number(s.size, 1));
    hints.launcher = s.name;
    hints.mpi = s.mpi;
    // Slurm's launcher sets Slurm's name for the local process, however its processes find each
    // other.
    hints.local_process = number(s.local_process, number("SLURM_LOCALID", -1));
    const int here = number("OMPI_COMM_WORLD_LOCAL_SIZE", hints.size);
    hints.open_mpi_on_several_hosts = here < hints.size;
    return hints;
  }
  return {};
}

}  // namespace tfhvd
