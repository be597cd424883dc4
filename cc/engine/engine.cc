#include "cc/engine/engine.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include "cc/base/backoff.h"
#include "cc/base/mutex.h"
#include "cc/device/device.h"
#include "cc/engine/batching_window.h"
#include "cc/engine/clock.h"
#include "cc/engine/pipeline.h"
#include "cc/engine/vote_polling.h"
#include "cc/queue/submission_queue.h"

namespace tfhvd {
namespace {

// How often an idle rank reads messages if nothing wakes it: otherwise rank 0 would not learn that
// other ranks wait for it. Costs about 10 microseconds a second.
constexpr double kIdleWaitSeconds = 0.25;

// How long the loop waits for the next entry of a batch, and how often. TensorFlow starts an
// operation every few microseconds.
constexpr long kGatherNs = 20000;
constexpr int kGatherMost = 50;

// The size in bytes up to which the thread that submits the last tensor of a locked step's bucket
// runs the bucket: waking the engine's thread would take longer.
constexpr int64_t kInlineBytes = 1 << 20;

// How long a rank that has finished tries to send its last messages, and a rank whose job has
// failed.
constexpr double kFlushSeconds = 5.0;
constexpr double kLostFlushSeconds = 1.0;

std::chrono::nanoseconds Nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(std::max(0.0, seconds) * 1e9));
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const Config& config, Log log, Topology topology, std::unique_ptr<ControlPlane> control,
       std::unique_ptr<Communicator> communicator, Accelerator accelerator,
       CommunicatorFactory open)
      : config_(config),
        log_(log),
        topology_(std::move(topology)),
        control_(std::move(control)),
        communicator_(std::move(communicator)),
        accelerator_(std::move(accelerator)),
        may_run_inline_(control_->can_run_inline() && communicator_->prompt() &&
                        accelerator_.device == nullptr),
        queue_([this] { control_->Wake(); }, [this] { RunInline(); }),
        sets_(topology_.size, topology_.generation),
        telemetry_(config_, log_, topology_, &sets_),
        pipeline_(config_, log_, topology_, control_.get(), communicator_.get(), &sets_, &queue_,
                  telemetry_.observer(), std::move(open)) {
    queue_.SetObserver(telemetry_.observer());
    pipeline_.SetAccelerator(accelerator_.device.get(), accelerator_.backend.get());
    pipeline_.SetOnBroken([this](const Status& why) { queue_.Close(why); });
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    Leave("");
    MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  EntryId Submit(Entry&& entry) {
    EntryId id = 0;
    if (requests_stop_.load(std::memory_order_relaxed)) MarkStop(&entry);
    Status status = MarkReady(&entry);
    if (status.ok()) status = queue_.Push(&entry, &id);
    if (!status.ok()) entry.done(status);
    return id;
  }

  Status Follow(void* stream, const std::shared_ptr<void>& mark) {
    return mark == nullptr ? Status::Ok() : accelerator_.device->Follow(stream, mark);
  }

  void Cancel(EntryId id) { queue_.Cancel(id); }

  void Leave(const std::string& reason) {
    queue_.Close(Status::FailedPrecondition("tfhvd has been shut down on rank " +
                                            std::to_string(topology_.rank) +
                                            ". Call hvd.init() before the next operation."));
    queue_.Leave(reason);
  }

  void Abandon(const Status& why) {
    pipeline_.Abandon(why);
    communicator_->Abort(why);
    control_->Wake();
  }

  bool WaitUntilOver(double seconds) TFHVD_EXCLUDES(over_mutex_, join_mutex_) {
    {
      const double deadline = Now() + seconds;
      MutexLock lock(&over_mutex_);
      while (!over_ && Now() < deadline) {
        over_changed_.WaitFor(&over_mutex_, Nanoseconds(std::min(deadline - Now(), 1.0)));
      }
      if (!over_) return false;
    }
    MutexLock lock(&join_mutex_);
    if (thread_.joinable()) thread_.join();
    return true;
  }

  Status lost() const TFHVD_EXCLUDES(over_mutex_) {
    MutexLock lock(&over_mutex_);
    return lost_;
  }

  Status health() const { return queue_.closed(); }
  bool cut_short() const { return pipeline_.cut_short() || !health().ok(); }
  bool has_accelerator() const { return accelerator_.device != nullptr; }
  const Topology& topology() const { return topology_; }
  const Config& config() const { return config_; }
  const ProcessSetTable& process_sets() const { return sets_; }
  bool stop_asked(int32_t process_set) { return pipeline_.stop_asked(process_set); }
  void RequestStop() { requests_stop_.store(true, std::memory_order_relaxed); }
  bool stop_requested(int32_t process_set) { return pipeline_.stop_requested(process_set); }

  Telemetry& telemetry() { return telemetry_; }
  Pipeline* pipeline() { return &pipeline_; }

 private:
  // Joins have a stop request of another kind, and entries apart from the program's steps complete
  // in the middle of a step.
  static void MarkStop(Entry* entry) {
    if (entry->apart || entry->request->kind == Collective::kJoin) return;
    Request request = *entry->request;
    request.stops = true;
    entry->request = std::move(request);
  }

  Status MarkReady(Entry* entry) {
    if (entry->request->device == DeviceKind::kHost) return Status::Ok();
    if (accelerator_.device == nullptr) {
      return Status::Unavailable("'" + entry->request->key.name +
                                 "' is on a GPU, which tfhvd cannot use here. To see why, type: "
                                 "python -c 'import tfhvd; print(tfhvd.build_info())'");
    }
    const void* memory = nullptr;
    for (const void* input : entry->inputs) memory = memory != nullptr ? memory : input;
    return accelerator_.device->Mark(entry->extras().stream, memory, &entry->EditExtras()->ready);
  }

  // Only one thread runs the stages: the engine's, or a submitting thread while the engine's
  // sleeps.
  void Begin() TFHVD_ACQUIRE(running_) {
    running_.Lock();
    runner_.store(std::this_thread::get_id());
  }
  void End() TFHVD_RELEASE(running_) {
    runner_.store(std::thread::id());
    running_.Unlock();
  }

  // Called when the awaited bucket is complete.
  void RunInline() TFHVD_EXCLUDES(running_) {
    // True if a `done` submits on this thread.
    const bool within = runner_.load() == std::this_thread::get_id();
    if (within || !inline_.load() || !running_.TryLock()) return control_->Wake();
    runner_.store(std::this_thread::get_id());
    bool rest = true;
    try {
      // `inline_` is read again, because the engine's thread may have run meanwhile, or ended.
      if (inline_.exchange(false)) rest = RunBucket();
    } catch (const std::bad_alloc&) {
      pipeline_.LoseForMemory();
    }
    End();
    if (rest) control_->Wake();
  }

  // Runs the complete bucket and nothing else, unless votes of other ranks are late; returns
  // whether the engine's thread has more to do.
  bool RunBucket() TFHVD_REQUIRES(running_) {
    if (!consensus().locked()) return true;
    bool waits = false;  // for votes
    vote_polling_.Begin(Now());
    do {
      control_->BeginInline();
      waits = pipeline_.RunBucket();
    } while (waits && vote_polling_.Pause(Now()));
    vote_polling_.Ended(!waits);
    control_->BeginInline();  // the wake-ups for these votes are answered
    const bool rest =
        waits || !consensus().locked() || pipeline_.anything_to_run() || !PrepareToSleep();
    control_->EndInline();
    return rest;
  }

  void Run() {
    Begin();
    const Status lost = Loop();
    inline_.store(false);
    if (!lost.ok() && !pipeline_.abandoned()) pipeline_.RaiseAlarmAndWait(lost);
    const Status why = lost.ok() ? Status::Aborted("every rank has left the job") : lost;
    // Closed before streams are released: a program that sees its stream continue gets the reason
    // at its next operation.
    queue_.Close(why);
    pipeline_.Finish(lost, why);
    queue_.Drain(&batch_);
    for (Entry& entry : batch_.entries) entry.done(why);
    for (Entry& entry : batch_.twice) entry.done(why);
    const Status recorded = telemetry_.StopTimeline();
    if (!recorded.ok()) log_.Error(recorded.message());
    const double deadline = Now() + (lost.ok() ? kFlushSeconds : kLostFlushSeconds);
    for (Backoff backoff; !pipeline_.abandoned() && !control_->Flushed() && Now() < deadline;) {
      backoff.Pause();
    }
    pipeline_.CompleteRest();
    End();
    MutexLock lock(&over_mutex_);
    over_ = true;
    lost_ = lost;
    over_changed_.NotifyAll();
  }

  // Runs until every rank has left (ok), or the job has failed.
  Status Loop() TFHVD_REQUIRES(running_) {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // makes short sleeps short
    try {
      while (pipeline_.lost().ok() && !consensus().over()) {
        TFHVD_RETURN_IF_ERROR(pipeline_.abandonment());
        Gather();
        if (RunOnce() || !pipeline_.lost().ok()) continue;
        // All messages of the failed rank have been read, and none said that it leaves.
        if (!peers_.ok()) return peers_;
        Wait();
        LookAtPeers();
      }
    } catch (const std::bad_alloc&) {
      pipeline_.LoseForMemory();
    }
    return pipeline_.lost();
  }

  // Passes once through the stages with what has arrived; returns whether anything had.
  bool RunOnce() TFHVD_REQUIRES(running_) {
    queue_.Drain(&batch_);
    window_.Took(batch_.entries.size());
    const bool worked = pipeline_.Run(&batch_);
    if (consensus().idle()) window_.Ended();
    if (!worked && batch_.empty()) return false;
    peers_ = Status::Ok();
    return true;
  }

  const Consensus& consensus() const TFHVD_REQUIRES(running_) { return pipeline_.consensus(); }

  // The batching window: waits as long as submissions keep coming.
  void Gather() TFHVD_REQUIRES(running_) {
    if (consensus().locked()) return;  // the number of entries is known
    size_t count = queue_.size();
    for (int i = 0; i < kGatherMost && window_.MoreLikely(count); ++i) {
      const timespec t{0, kGatherNs};
      nanosleep(&t, nullptr);
      const size_t grown = queue_.size();
      if (grown == count) return;
      count = grown;
    }
  }

  // Returns whether there is nothing to do before more entries come; allows inline execution from
  // here on.
  bool PrepareToSleep() TFHVD_REQUIRES(running_) {
    const LockedStep::Bucket* const bucket = consensus().awaited();
    inline_.store(may_run_inline_ && bucket != nullptr && bucket->bytes <= kInlineBytes);
    return queue_.Arm(bucket != nullptr);
  }

  // Sleeps until there may be work. Another thread may run the stages meanwhile.
  void Wait() TFHVD_REQUIRES(running_) {
    if (!PrepareToSleep()) return;
    const double now = Now();
    const double until = std::min(pipeline_.wake_at(now), now + kIdleWaitSeconds);
    const bool expecting = pipeline_.expecting();
    End();
    control_->Wait(Nanoseconds(until - now), expecting);
    Begin();
  }

  // A killed rank sends no message, and its launcher may not report it. Neither does work on a GPU:
  // over its own connections, NCCL waits for a failed rank for ever.
  void LookAtPeers() TFHVD_REQUIRES(running_) {
    const double now = Now();
    if (now - looked_ < kIdleWaitSeconds) return;
    const bool busy = accelerator_.device != nullptr && accelerator_.device->busy();
    const bool at_rest = consensus().idle() && !busy;
    if (at_rest && !consensus().left()) return;
    looked_ = now;
    peers_ = at_rest ? pipeline_.LookAtWhoIsToLeave() : pipeline_.LookAtPeers();
  }

  // Constant after construction.
  const Config config_;
  const Log log_;
  const Topology topology_;

  // Used by the runner only, except ControlPlane::Wait and Wake, and Communicator::Abort.
  const std::unique_ptr<ControlPlane> control_;
  const std::unique_ptr<Communicator> communicator_;
  const Accelerator accelerator_;  // any thread calls Device::Mark and Follow
  const bool may_run_inline_;      // whether other threads than the engine's can run anything
  SubmissionQueue queue_;          // provides its own synchronization
  ProcessSetTable sets_;           // provides its own synchronization; the executor writes it
  Telemetry telemetry_;            // provides its own synchronization

  Mutex running_;  // held by the runner
  std::atomic<std::thread::id> runner_{};
  // Whether the thread that submits the last awaited entry may run the bucket.
  std::atomic<bool> inline_{false};
  std::atomic<bool> requests_stop_{false};
  Pipeline pipeline_;  // used by the runner only, except stop_asked and stop_requested
  BatchingWindow window_ TFHVD_GUARDED_BY(running_);
  VotePolling vote_polling_ TFHVD_GUARDED_BY(running_);
  SubmissionQueue::Batch batch_ TFHVD_GUARDED_BY(running_);
  Status peers_ TFHVD_GUARDED_BY(running_);         // whether all known peers are alive
  double looked_ TFHVD_GUARDED_BY(running_) = 0.0;  // the time of the last look at peers_

  mutable Mutex over_mutex_;
  CondVar over_changed_;
  bool over_ TFHVD_GUARDED_BY(over_mutex_) = false;
  Status lost_ TFHVD_GUARDED_BY(over_mutex_);  // valid once over

  Mutex join_mutex_;
  std::thread thread_ TFHVD_GUARDED_BY(join_mutex_);
};

Engine::Engine(const Config& config, Log log, Topology topology,
               std::unique_ptr<ControlPlane> control, std::unique_ptr<Communicator> communicator,
               Accelerator accelerator, CommunicatorFactory open)
    : impl_(std::make_unique<Impl>(config, log, std::move(topology), std::move(control),
                                   std::move(communicator), std::move(accelerator),
                                   std::move(open))) {}

Engine::~Engine() = default;

EntryId Engine::Submit(Entry&& entry) { return impl_->Submit(std::move(entry)); }
Status Engine::Follow(void* stream, const std::shared_ptr<void>& mark) {
  return impl_->Follow(stream, mark);
}
void Engine::Cancel(EntryId id) { impl_->Cancel(id); }
void Engine::Leave(const std::string& reason) { impl_->Leave(reason); }
void Engine::Abandon(const Status& why) { impl_->Abandon(why); }
bool Engine::WaitUntilOver(double seconds) { return impl_->WaitUntilOver(seconds); }
Status Engine::lost() const { return impl_->lost(); }
Status Engine::health() const { return impl_->health(); }
bool Engine::cut_short() const { return impl_->cut_short(); }
bool Engine::has_accelerator() const { return impl_->has_accelerator(); }
const Topology& Engine::topology() const { return impl_->topology(); }
WaitMonitor* Engine::wait_monitor() { return impl_->pipeline(); }
const Config& Engine::config() const { return impl_->config(); }
const ProcessSetTable& Engine::process_sets() const { return impl_->process_sets(); }
Telemetry& Engine::telemetry() { return impl_->telemetry(); }
bool Engine::stop_asked(int32_t process_set) const { return impl_->stop_asked(process_set); }
void Engine::RequestStop() { impl_->RequestStop(); }
bool Engine::stop_requested(int32_t process_set) const {
  return impl_->stop_requested(process_set);
}
void Engine::BarrierEvery(int64_t bytes, std::function<void()> passed) {
  impl_->pipeline()->BarrierEvery(bytes, std::move(passed));
}

}  // namespace tfhvd
