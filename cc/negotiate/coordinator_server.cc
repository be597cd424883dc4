#include "cc/negotiate/coordinator_server.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "cc/base/files.h"
#include "cc/base/fingerprint.h"
#include "cc/flow/codec.h"

namespace tfhvd {
namespace {

constexpr int kCoordinatorRank = 0;

// How long rank 0's own agreement waits until those of the others have been sent: in a collective,
// rank 0 makes progress with messages only from time to time. The limit matters if a rank does not
// read.
constexpr double kFlushSeconds = 0.01;

// Identifies the kind of machines and jobs for which tuning results are remembered. They are
// checked again before use, so that more distinction is not needed.
uint64_t FingerprintOf(const Topology& topology) {
  std::string text = std::to_string(std::thread::hardware_concurrency());
  for (const int host : topology.host_of) text += " " + std::to_string(host);
  std::string about;
  (void)ReadFile("/proc/cpuinfo", &about);
  std::istringstream processors(about);
  for (std::string line; std::getline(processors, line);) {
    if (line.compare(0, 10, "model name") != 0) continue;
    text += line;
    break;
  }
  return Fingerprint(text.data(), text.size());
}

std::string MemoryOf(const Config& config) {
  if (!config.autotune || config.autotune_file == "none") return "";
  if (!config.autotune_file.empty()) return config.autotune_file;
  return config.cache_folder.empty() ? "" : config.cache_folder + "/autotune";
}

Coordinator::Options OptionsFrom(const Config& config, const Topology& topology, bool may_lock,
                                 const TuningFiles& files) {
  Coordinator::Options options;
  options.cache_capacity = config.cache_capacity;
  options.cycle_time = config.cycle_time / 1000.0;
  options.stall_check = config.stall_check;
  options.stall_check_time = config.stall_check_time;
  options.stall_shutdown_time = config.stall_shutdown_time;
  options.hosts = topology.hosts;
  options.generation = topology.generation;
  options.may_lock = may_lock;
  options.lock.given = {config.bucket_bytes, {config.fusion_threshold, config.alone_bytes}};
  options.lock.autotune = config.autotune;
  if (config.autotune) {
    options.lock.remembered = files.Load();
    options.lock.machine = FingerprintOf(topology);
  }
  return options;
}

}  // namespace

class CoordinatorServer::Loopback : public MessageChannel {
 public:
  explicit Loopback(MessageChannel* channel) : channel_(channel) {}

  int rank() const override { return channel_->rank(); }
  int size() const override { return channel_->size(); }

  Status Send(int, std::string bytes) override {
    up.push_back(std::move(bytes));
    return Status::Ok();
  }
  Status Receive(std::optional<Message>* message) override {
    message->reset();
    if (down.empty()) return Status::Ok();
    *message = Message{kCoordinatorRank, std::move(down.front())};
    down.pop_front();
    return Status::Ok();
  }
  void Alarm(const std::string& bytes) override { channel_->Alarm(bytes); }
  bool Flushed() override { return channel_->Flushed(); }

  std::deque<std::string> up;    // to the coordinator
  std::deque<std::string> down;  // from it

 private:
  MessageChannel* const channel_;  // Not owned.
};

CoordinatorServer::CoordinatorServer(const Config& config, const Log& log, const Topology& topology,
                                     MessageChannel* channel, bool may_lock)
    : log_(log),
      failpoints_(config.failpoints),
      channel_(channel),
      tuning_files_(config.autotune_log, MemoryOf(config), log),
      coordinator_(OptionsFrom(config, topology, may_lock, tuning_files_)),
      loopback_(std::make_unique<Loopback>(channel)) {}

CoordinatorServer::~CoordinatorServer() = default;

MessageChannel* CoordinatorServer::loopback() { return loopback_.get(); }

Status CoordinatorServer::Step(double now, bool* progress) {
  TFHVD_RETURN_IF_ERROR(TakeMessages(now, progress));
  TFHVD_RETURN_IF_ERROR(Send(now, progress));
  HandOver(now, progress);
  return coordinator_.lost(now);
}

Status CoordinatorServer::TakeMessages(double now, bool* progress) {
  while (true) {
    std::optional<Message> message;
    if (!loopback_->up.empty()) {
      message = Message{kCoordinatorRank, std::move(loopback_->up.front())};
      loopback_->up.pop_front();
    } else {
      TFHVD_RETURN_IF_ERROR(channel_->Receive(&message));
    }
    if (!message.has_value()) return Status::Ok();
    *progress = true;
    if (IsAlarm(message->bytes)) {
      channel_->Alarm(message->bytes);  // to ranks that its sender cannot reach
      loopback_->down.push_back(std::move(message->bytes));
      continue;
    }
    Announcement announcement;
    TFHVD_RETURN_IF_ERROR(Decode(message->bytes, &announcement));
    TFHVD_RETURN_IF_ERROR(coordinator_.Take(message->from, std::move(announcement), now));
  }
}

Status CoordinatorServer::Send(double now, bool* progress) {
  const Agreement* encoded = nullptr;  // the agreement encoded in `bytes`: often one for all
  std::string bytes;
  for (const auto& [to, agreement] : coordinator_.Step(now)) {
    *progress = true;
    if (agreement.get() != encoded) bytes = Encode(*agreement);
    encoded = agreement.get();
    if (to != kCoordinatorRank) {
      TFHVD_RETURN_IF_ERROR(channel_->Send(to, bytes));
      failpoints_.Hit(Failpoint::kDecisionSent);
      continue;
    }
    if (held_.empty()) held_since_ = now;
    held_.push_back(bytes);
  }
  const std::string warning = coordinator_.TakeWarning();
  if (!warning.empty()) log_.Warning(warning);
  tuning_files_.Write(coordinator_.TakeTuning());
  return Status::Ok();
}

void CoordinatorServer::HandOver(double now, bool* progress) {
  const bool flushed = channel_->Flushed();
  if (held_.empty() || (!flushed && now - held_since_ < kFlushSeconds)) return;
  *progress = true;
  for (std::string& bytes : held_) loopback_->down.push_back(std::move(bytes));
  held_.clear();
}

double CoordinatorServer::wake_at() const {
  const double at = coordinator_.wake_at();
  return held_.empty() ? at : std::min(at, held_since_ + kFlushSeconds);
}

}  // namespace tfhvd
