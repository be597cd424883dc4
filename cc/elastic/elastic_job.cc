#include "cc/elastic/elastic_job.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace tfhvd {
namespace {

constexpr std::chrono::seconds kLook(1);  // how often entries that wait in vain are looked for

Status MembersChange() { return Status::Aborted("the job goes on without ranks that are lost"); }

// Ends what a generation's members wait for as they meet, once there is a later one.
class MeetingMonitor : public WaitMonitor {
 public:
  MeetingMonitor(Membership* membership, int generation)
      : membership_(membership), generation_(generation) {}

  Status OnWait(const Wait&) override {
    return membership_->HasNext(generation_) ? MembersChange() : Status::Ok();
  }

 private:
  Membership* const membership_;  // Not owned.
  const int generation_;
};

bool IsKept(const Request& request) {
  return request.key.process_set == 0 && request.device == DeviceKind::kHost;
}

// Whether all ranks have the same result.
bool IsAlike(Collective kind) {
  return kind != Collective::kAllToAll && kind != Collective::kReduceScatter;
}

Status GatherPositions(const Position& own, Communicator* everyone,
                       std::vector<Position>* positions) {
  const auto size = static_cast<size_t>(everyone->size());
  const std::string mine = Encode(own);
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(size);
  TFHVD_RETURN_IF_ERROR(
      everyone->AllGather(&length, lengths.data(), std::vector<int64_t>(size, sizeof length)));
  std::string all(static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
                  '\0');
  TFHVD_RETURN_IF_ERROR(everyone->AllGather(mine.data(), &all[0], lengths));
  size_t at = 0;
  for (const int64_t part : lengths) {
    TFHVD_RETURN_IF_ERROR(
        Decode(all.substr(at, static_cast<size_t>(part)), &positions->emplace_back()));
    at += static_cast<size_t>(part);
  }
  return Status::Ok();
}

std::string LostText(const Roster& before, const Roster& roster) {
  std::string lost;
  for (size_t rank = 0; rank < before.members.size(); ++rank) {
    const auto& left = roster.members;
    if (std::find(left.begin(), left.end(), before.members[rank]) == left.end()) {
      lost += (lost.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return lost;
}

}  // namespace

ElasticJob::ElasticJob(Roster roster, std::shared_ptr<Engine> engine, Membership* membership,
                       Open open, Log log, std::chrono::nanoseconds limit)
    : membership_(membership),
      open_(std::move(open)),
      log_(log),
      limit_(limit),
      engine_(std::move(engine)),
      roster_(std::move(roster)) {
  thread_ = std::thread([this] { Run(); });
}

ElasticJob::~ElasticJob() { Stop(); }

void ElasticJob::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopped_ = true;
  }
  membership_->Stop();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  FailAll([](const Kept& kept) { return kept.generation < 0; }, MembersChange());
}

std::shared_ptr<Engine> ElasticJob::engine() const {
  const MutexLock lock(&mutex_);
  return engine_;
}

int ElasticJob::generation() const {
  const MutexLock lock(&mutex_);
  return roster_.generation;
}

int ElasticJob::WaitForGeneration(int generation, std::chrono::nanoseconds most) const {
  const MutexLock lock(&mutex_);
  if (roster_.generation <= generation && !stopped_) changed_.WaitFor(&mutex_, most);
  return roster_.generation;
}

EntryId ElasticJob::Submit(Entry&& entry) {
  auto kept = std::make_unique<Kept>();
  kept->entry = std::move(entry);
  Entry& own = kept->entry;
  kept->inputs.resize(own.inputs.size());
  for (size_t i = 0; i < own.inputs.size() && IsKept(*own.request); ++i) {
    if (own.inputs[i] == nullptr || own.inputs[i] != own.outputs[i]) continue;
    const TensorSpec& tensor = own.request->tensors[i];
    const char* const from = static_cast<const char*>(own.inputs[i]);
    kept->inputs[i].assign(from, from + NumElements(tensor.shape) * ItemSize(tensor.dtype));
    own.inputs[i] = kept->inputs[i].data();
  }
  std::shared_ptr<Engine> engine;
  EntryId number = 0;
  {
    const MutexLock lock(&mutex_);
    number = next_++;
    kept_.emplace(number, std::move(kept));
    if (open_for_entries_ || stopped_) engine = engine_;
  }
  if (engine != nullptr) (void)SubmitTo(engine, number);
  return number;
}

// Whether the engine has had it.
bool ElasticJob::SubmitTo(const std::shared_ptr<Engine>& engine, EntryId number) {
  Entry inner;
  int generation = 0;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end() || found->second->generation >= 0) return false;
    generation = found->second->generation = roster_.generation;
    inner = InnerOf(number, found->second.get());
  }
  const EntryId id = engine->Submit(std::move(inner));
  bool cancelled = false;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end() || found->second->generation != generation) return true;
    found->second->id = id;
    cancelled = found->second->cancelled;
  }
  if (cancelled) engine->Cancel(id);
  return true;
}

// What an engine gets. Its callbacks find the entry by its number: it may be done by then.
Entry ElasticJob::InnerOf(EntryId number, Kept* kept) {
  Entry& own = kept->entry;
  const size_t tensors = own.inputs.size();
  Entry inner;
  inner.request = own.request;
  inner.anonymous = own.anonymous;
  inner.inputs = own.inputs;
  inner.outputs = own.outputs;
  if (own.allocate) {
    kept->shapes.assign(tensors, {});
    kept->outputs.assign(tensors, nullptr);
    inner.allocate = [this, number](int tensor, const Shape& shape, void** output) {
      return Allocate(number, tensor, shape, output);
    };
  }
  const EntryExtras& extras = own.extras();
  if (extras.stream != nullptr || extras.finished || !extras.splits.empty() ||
      extras.received_splits) {
    inner.EditExtras()->stream = extras.stream;
    inner.EditExtras()->finished = extras.finished;
    inner.EditExtras()->splits = extras.splits;
    inner.EditExtras()->received_splits = extras.received_splits;
  }
  if (own.request->kind == Collective::kAllGather) {
    kept->first_dims.assign(tensors, {});
    inner.EditExtras()->gathers = [this, number](int tensor, const std::vector<int64_t>& dims) {
      const MutexLock lock(&mutex_);
      const auto found = kept_.find(number);
      if (found == kept_.end()) return;
      found->second->first_dims[static_cast<size_t>(tensor)] = dims;
      if (found->second->entry.extras().gathers) {
        found->second->entry.extras().gathers(tensor, dims);
      }
    };
  }
  if (extras.number) {
    inner.EditExtras()->number = [this, number](int64_t value) {
      const MutexLock lock(&mutex_);
      const auto found = kept_.find(number);
      if (found == kept_.end()) return;
      found->second->number = value;
      found->second->entry.extras().number(value);
    };
  }
  inner.done = [this, number](const Status& status) { OnDone(number, status); };
  return inner;
}

Status ElasticJob::Allocate(EntryId number, int tensor, const Shape& shape, void** output) {
  Kept* kept = nullptr;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end()) return Status::Internal("a result comes after its end");
    kept = found->second.get();  // the engine has it, so that it stays
  }
  TFHVD_RETURN_IF_ERROR(kept->entry.allocate(tensor, shape, output));
  const MutexLock lock(&mutex_);
  kept->shapes[static_cast<size_t>(tensor)] = shape;
  kept->outputs[static_cast<size_t>(tensor)] = *output;
  return Status::Ok();
}

void ElasticJob::OnDone(EntryId number, const Status& status) {
  KeptPtr over;
  std::shared_ptr<Engine> again;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end()) return;
    Kept* const kept = found->second.get();
    const bool lost = status.code() == StatusCode::kAborted;
    if (lost && !stopped_ && !kept->cancelled && IsKept(*kept->entry.request)) {
      // The next generation is for it; maybe that is there.
      if (open_for_entries_ && kept->generation != roster_.generation) again = engine_;
      kept->generation = -1;
      kept->id = 0;
      kept->why = status;
      kept->waits_since = std::chrono::steady_clock::now();
    } else {
      if (status.ok()) NoteResult(number, kept);
      over = std::move(found->second);
      kept_.erase(found);
    }
  }
  if (again != nullptr) (void)SubmitTo(again, number);
  if (over != nullptr) over->entry.done(status);
}

void ElasticJob::NoteResult(EntryId number, Kept* kept) {
  const Request& request = *kept->entry.request;
  if (!IsKept(request) || roster_.size() == 1) return;
  Ledger::Result result;
  Outcome& outcome = result.outcome;
  outcome.copies = IsAlike(request.kind);
  outcome.first_dims = kept->first_dims;
  outcome.number = kept->number;
  for (size_t i = 0; i < request.tensors.size() && outcome.copies; ++i) {
    const bool late = kept->entry.outputs[i] == nullptr;
    outcome.shapes.push_back(late ? kept->shapes[i] : request.tensors[i].shape);
    outcome.bytes.push_back(NumElements(outcome.shapes[i]) * ItemSize(request.tensors[i].dtype));
    result.data.push_back(late ? kept->outputs[i] : kept->entry.outputs[i]);
  }
  if (kept->entry.retain) {
    result.memory = kept->entry.retain();
  } else {
    const int64_t bytes = std::accumulate(outcome.bytes.begin(), outcome.bytes.end(), int64_t{0});
    const auto copy = std::make_shared<std::vector<char>>(static_cast<size_t>(bytes));
    char* to = copy->data();
    for (size_t i = 0; i < result.data.size(); ++i) {
      if (outcome.bytes[i] == 0) continue;
      std::memcpy(to, result.data[i], static_cast<size_t>(outcome.bytes[i]));
      result.data[i] = to;
      to += outcome.bytes[i];
    }
    result.memory = copy;
  }
  ledger_.Done(request, std::move(result), number, next_);
}

void ElasticJob::Cancel(EntryId number) {
  KeptPtr over;
  std::shared_ptr<Engine> engine;
  EntryId id = 0;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end()) return;
    Kept* const kept = found->second.get();
    kept->cancelled = true;
    if (kept->generation < 0) {
      over = std::move(found->second);
      kept_.erase(found);
    } else {
      engine = engine_;
      id = kept->id;
    }
  }
  if (over != nullptr) {
    over->entry.done(Status::Cancelled("the step was cancelled while the members changed"));
  } else if (id != 0) {
    engine->Cancel(id);
  }
}

void ElasticJob::FailAll(const std::function<bool(const Kept&)>& which, const Status& why) {
  std::vector<KeptPtr> failed;
  {
    const MutexLock lock(&mutex_);
    for (auto each = kept_.begin(); each != kept_.end();) {
      const bool fails = which(*each->second);
      if (fails) failed.push_back(std::move(each->second));
      each = fails ? kept_.erase(each) : std::next(each);
    }
  }
  for (const KeptPtr& kept : failed) kept->entry.done(kept->why.ok() ? why : kept->why);
}

// --- the thread that follows the membership ---

void ElasticJob::Run() {
  int seen = generation();
  while (true) {
    std::optional<Roster> roster;
    const Status status = membership_->Next(seen, kLook, &roster);
    {
      const MutexLock lock(&mutex_);
      if (stopped_) return changed_.NotifyAll();
      stopped_ = !status.ok();
    }
    const auto waits = [](const Kept& kept) { return kept.generation < 0; };
    if (!status.ok()) {
      FailAll(waits, status);
      continue;
    }
    if (roster.has_value()) {
      seen = roster->generation;
      const Status taken = TakeUp(*roster);
      if (!taken.ok()) log_.Info("generation " + std::to_string(seen) + ": " + taken.message());
      continue;
    }
    const auto since = std::chrono::steady_clock::now() - limit_;
    FailAll([&](const Kept& kept) { return waits(kept) && kept.waits_since < since; },
            MembersChange());
  }
}

Status ElasticJob::TakeUp(const Roster& roster) {
  std::shared_ptr<Engine> engine;
  Roster before;
  {
    const MutexLock lock(&mutex_);
    open_for_entries_ = false;
    engine = engine_;
    before = roster_;
  }
  engine->Abandon(MembersChange());
  (void)engine->WaitUntilOver(std::numeric_limits<double>::infinity());
  MeetingMonitor monitor(membership_, roster.generation);
  std::shared_ptr<Engine> opened;
  TFHVD_RETURN_IF_ERROR(open_(
      roster, &monitor,
      [&](Communicator* everyone) { return ReconcileWith(before, roster, everyone); }, &opened));
  {
    const MutexLock lock(&mutex_);
    engine_ = opened;
    roster_ = roster;
  }
  Resubmit(opened);
  return Status::Ok();
}

Status ElasticJob::ReconcileWith(const Roster& before, const Roster& roster,
                                 Communicator* everyone) {
  std::vector<Position> positions;
  TFHVD_RETURN_IF_ERROR(GatherPositions(OwnPosition(), everyone, &positions));
  const std::vector<Copy> copies = CopiesOf(positions);
  for (const Copy& copy : copies) TFHVD_RETURN_IF_ERROR(MakeCopy(copy, everyone));
  // All of them have come so far: what is left is done anew, by all.
  RenumberRoots(before, roster);
  FailAll([](const Kept& kept) { return kept.root_is_lost; }, MembersChange());
  if (roster.rank == 0) {
    log_.Warning("rank " + LostText(before, roster) + " is lost; the job goes on with " +
                 std::to_string(roster.size()) + " ranks, numbered anew (generation " +
                 std::to_string(roster.generation) + "). Collectives that a survivor had, and " +
                 "others got from it: " + std::to_string(copies.size()));
  }
  return Status::Ok();
}

Position ElasticJob::OwnPosition() {
  Position position;
  const MutexLock lock(&mutex_);
  std::unordered_map<std::string, int64_t> counts;
  for (const auto& [number, kept] : kept_) {
    const Request& request = *kept->entry.request;
    if (!IsKept(request)) continue;
    position.waits.push_back(ledger_.TurnOf(request.key.name, counts[request.key.name]++));
  }
  for (const Ledger::Result& result : ledger_.results()) position.has.push_back(result.outcome);
  return position;
}

Status ElasticJob::MakeCopy(const Copy& copy, Communicator* everyone) {
  const std::vector<int64_t>& bytes = copy.outcome.bytes;
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  std::vector<char> data(static_cast<size_t>(total));
  if (everyone->rank() == copy.root) {
    const MutexLock lock(&mutex_);
    const Ledger::Result* const result = ledger_.Find(copy.outcome.turn);
    if (result == nullptr) return Status::Internal("a result is gone that others wait for");
    char* to = data.data();
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] > 0) std::memcpy(to, result->data[i], static_cast<size_t>(bytes[i]));
      to += bytes[i];
    }
  }
  if (total > 0) TFHVD_RETURN_IF_ERROR(everyone->Broadcast(data.data(), total, copy.root));
  TakeCopy(copy.outcome, data.data());
  return Status::Ok();
}

// Ends the entry that waits for this outcome, if there is one.
void ElasticJob::TakeCopy(const Outcome& outcome, const char* data) {
  EntryId number = 0;
  Kept* kept = nullptr;
  {
    const MutexLock lock(&mutex_);
    for (const auto& [each, candidate] : kept_) {
      const Request& request = *candidate->entry.request;
      // Of this name the first that waits is next: copies of a name come in their order.
      if (!IsKept(request) || request.key.name != outcome.turn.name) continue;
      if (ledger_.TurnOf(request.key.name, 0) == outcome.turn) {
        number = each;
        kept = candidate.get();
      }
      break;
    }
  }
  if (kept == nullptr) return;
  Entry& entry = kept->entry;
  Status status;
  if (!outcome.copies) {
    status = Status::Aborted("'" + outcome.turn.name +
                             "' was done on some ranks before one was lost, and its result differs "
                             "from rank to rank");
  }
  for (size_t i = 0; i < outcome.bytes.size() && status.ok(); ++i) {
    void* to = entry.outputs[i];
    if (to == nullptr) {
      if (entry.extras().gathers && i < outcome.first_dims.size()) {
        entry.extras().gathers(static_cast<int>(i), outcome.first_dims[i]);
      }
      status = entry.allocate(static_cast<int>(i), outcome.shapes[i], &to);
      kept->shapes.resize(outcome.bytes.size());
      kept->outputs.resize(outcome.bytes.size());
      kept->shapes[i] = outcome.shapes[i];
      kept->outputs[i] = to;
    }
    if (status.ok() && outcome.bytes[i] > 0) {
      std::memcpy(to, data, static_cast<size_t>(outcome.bytes[i]));
    }
    data += outcome.bytes[i];
  }
  KeptPtr over;
  {
    const MutexLock lock(&mutex_);
    const auto found = kept_.find(number);
    if (found == kept_.end()) return;  // cancelled meanwhile
    kept->first_dims = outcome.first_dims;
    kept->number = outcome.number;
    if (status.ok()) NoteResult(number, kept);
    over = std::move(found->second);
    kept_.erase(found);
  }
  if (status.ok() && over->entry.extras().number) over->entry.extras().number(outcome.number);
  over->entry.done(status);
}

// Broadcasts that wait name their root by its number of before.
void ElasticJob::RenumberRoots(const Roster& before, const Roster& roster) {
  const MutexLock lock(&mutex_);
  for (const auto& [number, kept] : kept_) {
    if (kept->entry.request->kind != Collective::kBroadcast || kept->why.ok()) continue;
    Request request = *kept->entry.request;
    const auto root = static_cast<size_t>(request.root);
    const auto found =
        root < before.members.size()
            ? std::find(roster.members.begin(), roster.members.end(), before.members[root])
            : roster.members.end();
    if (found == roster.members.end()) {
      kept->root_is_lost = true;
      kept->why = Status::Aborted("broadcast '" + request.key.name + "' cannot be completed: its " +
                                  "root is lost, and no other rank has the data");
      continue;
    }
    request.root = static_cast<int32_t>(found - roster.members.begin());
    kept->entry.request = SharedRequest(std::move(request));
  }
}

void ElasticJob::Resubmit(const std::shared_ptr<Engine>& engine) {
  EntryId last = 0;
  while (true) {
    {
      const MutexLock lock(&mutex_);
      auto next = kept_.upper_bound(last);
      while (next != kept_.end() && next->second->generation >= 0) ++next;
      if (next == kept_.end() || stopped_ || !engine->health().ok()) {
        open_for_entries_ = true;
        changed_.NotifyAll();
        return;
      }
      last = next->first;
    }
    (void)SubmitTo(engine, last);
  }
}

}  // namespace tfhvd
