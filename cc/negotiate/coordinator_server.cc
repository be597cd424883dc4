#include "cc/negotiate/coordinator_server.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cc/flow/codec.h"

namespace tfhvd {
namespace {

constexpr int kCoordinatorRank = 0;

// Rank 0 takes its own agreement when the others' have left it: in a collective it moves messages
// on from time to time only. It waits no longer than this for a rank that does not read.
constexpr double kFlushSeconds = 0.01;

Coordinator::Options OptionsFrom(const Config& config, const Topology& topology, bool may_lock) {
  Coordinator::Options options;
  options.cache_capacity = config.cache_capacity;
  options.cycle_time = config.cycle_time / 1000.0;
  options.stall_check = config.stall_check;
  options.stall_check_time = config.stall_check_time;
  options.stall_shutdown_time = config.stall_shutdown_time;
  options.hosts = topology.hosts;
  options.may_lock = may_lock;
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
      channel_(channel),
      coordinator_(OptionsFrom(config, topology, may_lock)),
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
      channel_->Alarm(message->bytes);  // to those whom its sender cannot reach
      loopback_->down.push_back(std::move(message->bytes));
      continue;
    }
    Announcement announcement;
    TFHVD_RETURN_IF_ERROR(Decode(message->bytes, &announcement));
    TFHVD_RETURN_IF_ERROR(coordinator_.Take(message->from, std::move(announcement), now));
  }
}

Status CoordinatorServer::Send(double now, bool* progress) {
  const Agreement* encoded = nullptr;  // what `bytes` are of: often the same for all
  std::string bytes;
  for (const auto& [to, agreement] : coordinator_.Step(now)) {
    *progress = true;
    if (agreement.get() != encoded) bytes = Encode(*agreement);
    encoded = agreement.get();
    if (to != kCoordinatorRank) {
      TFHVD_RETURN_IF_ERROR(channel_->Send(to, bytes));
      continue;
    }
    if (held_.empty()) held_since_ = now;
    held_.push_back(bytes);
  }
  const std::string warning = coordinator_.TakeWarning();
  if (!warning.empty()) log_.Warning(warning);
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
