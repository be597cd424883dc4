#include "cc/engine/pipeline.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/base/backoff.h"
#include "cc/engine/clock.h"
#include "cc/flow/codec.h"
#include "cc/fuse/planner.h"

namespace tfhvd {
namespace {

// How long a rank of a failed job waits before it fails its pending entries. Its process may end
// with that failure, and an MPI that reports ended processes then drops the messages that it has
// sent. The other ranks read messages at least every 100 ms.
constexpr double kAlarmSeconds = 0.3;

// How often the stage checks whether entries that wait for the rest of their backward pass delay
// others. Entries come one after the other; fewer than announced come only if a step ends early.
constexpr double kHeldSeconds = 0.002;

std::unique_ptr<CoordinatorServer> ServerOf(const Config& config, const Log& log,
                                            const Topology& topology, ControlPlane* control) {
  if (topology.rank != 0) return nullptr;
  return std::make_unique<CoordinatorServer>(config, log, topology, control,
                                             control->votes() != nullptr);
}

}  // namespace

Pipeline::Pipeline(const Config& config, const Log& log, const Topology& topology,
                   ControlPlane* control, Communicator* communicator, ProcessSetTable* sets,
                   SubmissionQueue* queue, Observer* observer, CommunicatorFactory open)
    : config_(config),
      log_(log),
      topology_(topology),
      control_(control),
      communicator_(communicator),
      host_peers_(topology),
      observer_(observer),
      host_(MakeHostDevice()),
      server_(ServerOf(config, log, topology, control)),
      consensus_(config, log, topology, sets,
                 server_ != nullptr ? server_->loopback() : static_cast<MessageChannel*>(control),
                 control->votes(), queue),
      executor_(host_.get(), sets, communicator, std::move(open)),
      guard_(log, topology.rank, StallLimitsOf(config)) {
  if (server_ != nullptr) server_->SetObserver(observer);
  consensus_.SetObserver(observer);
  executor_.SetObserver(observer);
  executor_.SetFailpoints(config.failpoints);
  executor_.SetWaitMonitor(this);
}

bool Pipeline::Run(SubmissionQueue::Batch* batch) {
  Consensus::Outcome outcome;
  const double now = Now();
  consensus_.Take(batch, now, &outcome);
  if (batch->leaving) consensus_.Leave(batch->leave_reason);
  Lose(Agree(now, &outcome));
  const bool progress = outcome.progress;
  Complete(std::move(outcome));
  if (lost_.ok()) Lose(executor_.Poll());
  return progress;
}

Status Pipeline::Agree(double now, Consensus::Outcome* outcome) {
  TFHVD_RETURN_IF_ERROR(consensus_.Step(now, outcome));
  if (server_ == nullptr) return Status::Ok();
  bool answered = false;
  TFHVD_RETURN_IF_ERROR(server_->Step(now, &answered));
  if (!answered) return Status::Ok();
  outcome->progress = true;
  return consensus_.Step(now, outcome);
}

bool Pipeline::RunBucket() {
  Consensus::Outcome outcome;
  const bool waits = consensus_.StepOneBucket(Now(), &outcome);
  if (!outcome.agreed.empty() && observer_->on()) observer_->RunsInline();
  Complete(std::move(outcome));
  return waits;
}

bool Pipeline::anything_to_run() {
  bool anything = false;
  Lose(consensus_.Poll(Now(), &anything));
  return anything || !lost_.ok();
}

void Pipeline::Complete(Consensus::Outcome outcome) {
  for (auto& [entry, status] : outcome.failed) {
    if (status.code() == StatusCode::kAborted) cut_short_.store(true, std::memory_order_release);
    Fail(&entry, status);
  }
  for (auto& [together, fusion] : outcome.agreed) {
    if (observer_->on()) observer_->AgreedOn(together);
    for (const Agreed& agreed : together) NoteStop(agreed);
    const std::vector<Plan> plans = MakePlans(together, fusion);
    if (lost_.ok()) {
      Lose(executor_.Run(plans, std::move(together)));
    } else {
      for (Agreed& agreed : together) Fail(&agreed.entry, lost_);
    }
  }
  if (server_ != nullptr && !outcome.agreed.empty()) server_->WaitsFrom(Now());
}

void Pipeline::Abandon(const Status& why) {
  const MutexLock lock(&abandoned_mutex_);
  if (abandoned_.load()) return;
  abandonment_ = why;
  abandoned_.store(true, std::memory_order_release);
}

Status Pipeline::abandonment() const {
  if (!abandoned()) return Status::Ok();
  const MutexLock lock(&abandoned_mutex_);
  return abandonment_;
}

Status Pipeline::OnWait(const Wait& wait) {
  TFHVD_RETURN_IF_ERROR(abandonment());
  const double now = Now();
  const std::string doing = executor_.doing();
  TFHVD_RETURN_IF_ERROR(consensus_.OnWait(doing, wait.seconds, now));
  bool ignored = false;
  if (server_ != nullptr) TFHVD_RETURN_IF_ERROR(server_->Step(now, &ignored));
  (void)control_->Flushed();
  TFHVD_RETURN_IF_ERROR(LookAtPeers());
  const Status status = guard_.OnWait(wait);
  return status.ok() ? status
                     : Status(status.code(), status.message() + " This rank is in " + doing + ".");
}

Status Pipeline::LookAtPeers() {
  TFHVD_RETURN_IF_ERROR(communicator_->Poll());
  return host_peers_.EveryoneRuns();
}

Status Pipeline::LookAtWhoIsToLeave() const {
  return host_peers_.EveryoneRuns(
      [this](int rank) { return server_ != nullptr ? server_->awaits_leave_of(rank) : rank == 0; });
}

void Pipeline::SetOnBroken(std::function<void(const Status&)> on_broken) {
  executor_.SetOnBroken([this, on_broken = std::move(on_broken)](const Status& why) {
    cut_short_.store(true, std::memory_order_release);
    on_broken(why);
    RaiseAlarm(why);
  });
}

void Pipeline::RaiseAlarm(const Status& lost) {
  if (alarm_raised_ || consensus_.alarmed()) return;
  alarm_raised_ = true;
  log_.Error(lost.message());
  control_->Alarm(Encode(Alarm{lost}));
}

void Pipeline::RaiseAlarmAndWait(const Status& lost) {
  RaiseAlarm(lost);
  const double until = Now() + kAlarmSeconds;
  for (Backoff backoff; Now() < until && !abandoned(); backoff.Pause()) (void)control_->Flushed();
}

void Pipeline::LoseForMemory() {
  Lose(Status::Unavailable("rank " + std::to_string(topology_.rank) + " (host " +
                           topology_.hosts[static_cast<size_t>(topology_.rank)] +
                           ") has run out of memory while it prepared a collective. Use smaller "
                           "batches or fewer processes on the host."));
}

void Pipeline::Finish(const Status& lost, const Status& why) {
  executor_.Finish(lost, config_.shutdown_timeout);
  for (Entry& entry : consensus_.TakeAll()) Fail(&entry, why);
}

double Pipeline::wake_at(double now) const {
  const double at =
      std::min(consensus_.wake_at(now),
               executor_.holds() ? now + kHeldSeconds : std::numeric_limits<double>::infinity());
  return server_ == nullptr ? at : std::min(at, server_->wake_at());
}

bool Pipeline::expecting() const {
  return consensus_.expecting() || (server_ != nullptr && server_->expecting());
}

// Called before the collective is done: a rank that has its result may ask at once.
void Pipeline::NoteStop(const Agreed& agreed) {
  const bool over = agreed.entry.request->kind == Collective::kJoin;
  const Decision& decision = agreed.decision;
  if (!over && !decision.stopping && !decision.stop_requested) return;
  const int32_t process_set = agreed.entry.request->key.process_set;
  const MutexLock lock(&stopping_mutex_);
  if (over) {
    stopping_.erase(process_set);
  } else if (decision.stopping) {
    stopping_.insert(process_set);
  } else {
    stop_requested_.insert(process_set);
  }
}

bool Pipeline::stop_asked(int32_t process_set) {
  const MutexLock lock(&stopping_mutex_);
  return stopping_.count(process_set) > 0;
}

bool Pipeline::stop_requested(int32_t process_set) {
  const MutexLock lock(&stopping_mutex_);
  return stop_requested_.count(process_set) > 0;
}

void Pipeline::Fail(Entry* entry, const Status& why) {
  if (observer_->on()) observer_->Done(entry->id, why);
  entry->done(why);
}

}  // namespace tfhvd
