#include "cc/backends/mpi/mpi_world.h"

#include <unistd.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cc/backends/mpi/mpi_api.h"
#include "cc/backends/mpi/mpi_control_plane.h"
#include "cc/backends/mpi/mpi_error.h"
#include "cc/backends/mpi/mpi_loader.h"
#include "cc/backends/mpi/mpi_threads.h"
#include "cc/backends/mpi/mpi_transfers.h"
#include "cc/base/log.h"
#include "cc/collectives/transfer/transfer_communicator.h"
#include "cc/comm/stall_guard.h"

namespace tfhvd {
namespace {

// Messages with this tag agree on the tag of a new communicator.
constexpr int kOpeningTag = 0;

Status Failed(const MpiApi& api, const char* function, int error) {
  return Status::Internal(std::string(function) + " of " + api.Library() +
                          " failed: " + MpiErrorText(api, error));
}

#define TFHVD_MPI_CALL(api, function, call)              \
  do {                                                   \
    const int error = (api).call;                        \
    if (error != 0) return Failed(api, function, error); \
  } while (false)

class MpiWorld : public World {
 public:
  // `ranks` of MPI_COMM_WORLD, empty for all; `rank` is this process's index among them.
  MpiWorld(const MpiApi* api, const Config& config, std::vector<int> ranks = {}, int rank = 0)
      : api_(*api),
        config_(config),
        ranks_(std::move(ranks)),
        rank_(rank),
        size_(static_cast<int>(ranks_.size())) {}

  // Begins MPI, unless the process has begun it. Only for the world of all ranks, before all other
  // calls.
  Status Begin() {
    int begun = 0;
    int ended = 0;
    int threads = 0;
    TFHVD_MPI_CALL(api_, "MPI_Initialized", Initialized(&begun));
    TFHVD_MPI_CALL(api_, "MPI_Finalized", Finalized(&ended));
    if (ended != 0) {
      return Status::FailedPrecondition(
          "MPI has been finalized in this process and cannot be started again. Call hvd.init() "
          "before MPI is finalized, and only once in each process.");
    }
    if (begun == 0) {
      TFHVD_MPI_CALL(api_, "MPI_Init_thread", InitThread(&threads));
      owns_mpi_ = true;
    } else {
      TFHVD_MPI_CALL(api_, "MPI_Query_thread", QueryThread(&threads));
    }
    std::string warning;
    TFHVD_RETURN_IF_ERROR(CheckMpiThreads(api_.Library(), owns_mpi_, threads, &warning));
    TFHVD_MPI_CALL(api_, "MPI_Comm_rank", Rank(&rank_));
    TFHVD_MPI_CALL(api_, "MPI_Comm_size", Size(&size_));
    if (!warning.empty() && rank_ == 0) Log(config_.log_level, rank_).Warning(warning);
    return Status::Ok();
  }

  const char* name() const override { return "mpi"; }
  std::string description() const override { return api_.Library(); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status OpenPart(const std::vector<int>& ranks, std::unique_ptr<World>* out) override {
    int index = 0;
    TFHVD_RETURN_IF_ERROR(FindIndex(*this, ranks, &index));
    std::vector<int> of_mpi;
    for (const int r : ranks) {
      of_mpi.push_back(ranks_.empty() ? r : ranks_[static_cast<size_t>(r)]);
    }
    *out = std::make_unique<MpiWorld>(&api_, config_, std::move(of_mpi), index);
    return Status::Ok();
  }

  Status OpenControlPlane(std::unique_ptr<ControlPlane>* out) override {
    TFHVD_RETURN_IF_ERROR(Join());
    TFHVD_RETURN_IF_ERROR(CheckTag(next_plane_));
    *out = std::make_unique<MpiControlPlane>(&api_, control_, next_plane_, rank_, size_);
    ++next_plane_;  // equal on all ranks, because all open it
    return Status::Ok();
  }

  Status OpenCommunicator(const std::vector<int>& members,
                          std::unique_ptr<Communicator>* out) override {
    MpiPort port;
    TFHVD_RETURN_IF_ERROR(FindMember(*this, members, &port.rank));
    TFHVD_RETURN_IF_ERROR(Join());
    port.api = &api_;
    port.comm = data_;
    port.tag = kOpeningTag;
    port.members = members;

    // The members' next free tags differ if they opened other communicators before: the greatest is
    // free for all.
    int64_t tag = next_tag_;
    TransferCommunicator opening(std::make_unique<MpiTransfers>(port));
    opening.SetWaitMonitor(monitor());
    TFHVD_RETURN_IF_ERROR(
        opening.AllReduce(&tag, &tag, 1, DType::kInt64, Reduction{ReduceOp::kMax, 1.0, 1.0}));
    TFHVD_RETURN_IF_ERROR(CheckTag(tag + kChannels - 1));
    next_tag_ = tag + kChannels;
    port.tag = static_cast<int>(tag);
    *out = std::make_unique<TransferCommunicator>(std::make_unique<MpiTransfers>(std::move(port)));
    (*out)->SetWaitMonitor(monitor());
    return Status::Ok();
  }

  void SetWaitMonitor(WaitMonitor* monitor) override { monitor_ = monitor; }

  Status Close() override {
    int ended = 0;
    TFHVD_MPI_CALL(api_, "MPI_Finalized", Finalized(&ended));
    if (ended != 0) return Status::Ok();
    if (owns_mpi_) {
      TFHVD_MPI_CALL(api_, "MPI_Finalize", Finalize());
      return Status::Ok();
    }
    if (!joined_) return Status::Ok();
    TFHVD_MPI_CALL(api_, "MPI_Comm_free", FreeComm(&control_));
    TFHVD_MPI_CALL(api_, "MPI_Comm_free", FreeComm(&data_));
    return Status::Ok();
  }

 private:
  // Opens the two communicators, at the first call. Collective.
  Status Join() {
    if (joined_) return Status::Ok();
    const char* const call = ranks_.empty() ? "MPI_Comm_dup" : "MPI_Comm_create_group";
    const int count = static_cast<int>(ranks_.size());
    TFHVD_MPI_CALL(api_, call, OpenComm(ranks_.data(), count, 0, &control_));
    TFHVD_MPI_CALL(api_, call, OpenComm(ranks_.data(), count, 1, &data_));
    TFHVD_MPI_CALL(api_, "MPI_Comm_get_attr", LargestTag(data_, &largest_tag_));
    stall_guard_.emplace(Log(config_.log_level, rank_), rank_, StallLimitsOf(config_));
    joined_ = true;
    return Status::Ok();
  }

  WaitMonitor* monitor() { return monitor_ != nullptr ? monitor_ : &*stall_guard_; }

  Status CheckTag(int64_t tag) const {
    if (tag <= largest_tag_) return Status::Ok();
    return Status::Unavailable("This process has opened as many communicators as " +
                               std::string(api_.Library()) + " can tell apart (" +
                               std::to_string(largest_tag_) +
                               "). Restart the job, or keep process sets instead of making new "
                               "ones.");
  }

  const MpiApi& api_;
  const Config config_;
  const std::vector<int> ranks_;
  bool owns_mpi_ = false;
  int rank_;
  int size_;
  bool joined_ = false;
  MpiHandle control_ = 0;
  MpiHandle data_ = 0;
  int largest_tag_ = 0;
  int next_plane_ = 0;
  int64_t next_tag_ = kOpeningTag + kChannels;
  WaitMonitor* monitor_ = nullptr;         // Not owned.
  std::optional<StallGuard> stall_guard_;  // used if there is no other monitor
};

// Open MPI, by default, ends each process that had a TCP connection to a failed one, without naming
// the failed process. Its documentation says that its alternative, reporting the failure, is
// untested with InfiniBand's components.
void LetOpenMpiReportLostPeers(const LaunchHints& hints) {
  if (!hints.open_mpi_on_several_hosts || access("/sys/class/infiniband", F_OK) == 0) return;
  SetUnlessSet("OMPI_MCA_mpi_ft_enable", "1");
}

// Returns "Start it with: /opt/openmpi/bin/mpirun -np 4 ...", with the launcher of the library.
std::string StartAdvice(const MpiApi& api, int size) {
  const std::string file = api.LibraryFile();
  const size_t folder = file.rfind('/');
  std::string launcher = "mpirun";
  if (folder != std::string::npos) {
    for (const char* const relative : {"/../bin/mpirun", "/../../bin/mpirun"}) {
      const std::string candidate = file.substr(0, folder) + relative;
      if (access(candidate.c_str(), X_OK) != 0) continue;
      launcher = candidate;
      break;
    }
  }
  const char* const otherwise =
      ServesEveryMpi() ? "or let the loader find the other MPI's library: load its module, or set "
                         "LD_LIBRARY_PATH."
                       : "or install tfhvd for the other MPI: MPICC=<its mpicc> pip install "
                         "--no-cache-dir --force-reinstall --no-deps . in tfhvd's folder.";
  return "Type: " + launcher + " -np " + std::to_string(size) + " python ..., " + otherwise;
}

}  // namespace

Status ConnectMpiWorld(const Config& config, const LaunchHints& hints,
                       std::unique_ptr<World>* world) {
  const MpiApi* api = nullptr;
  TFHVD_RETURN_IF_ERROR(LoadMpiApi(&api));
  LetOpenMpiReportLostPeers(hints);
  auto opened = std::make_unique<MpiWorld>(api, config);
  TFHVD_RETURN_IF_ERROR(opened->Begin());
  if (hints.size > 1 && hints.size != opened->size()) {
    return Status::FailedPrecondition(
        "The job was started by one MPI and tfhvd uses another, so the processes do not find each "
        "other. Started by " +
        hints.launcher + " with " + std::to_string(hints.size) + " processes; " + api->Library() +
        " (" + api->LibraryFile() + ") sees " + std::to_string(opened->size()) + ". " +
        StartAdvice(*api, hints.size));
  }
  *world = std::move(opened);
  return Status::Ok();
}

Status ProbeMpi(std::string* description) {
  const MpiApi* api = nullptr;
  TFHVD_RETURN_IF_ERROR(LoadMpiApi(&api));
  *description = api->Library();
  return Status::Ok();
}

}  // namespace tfhvd
