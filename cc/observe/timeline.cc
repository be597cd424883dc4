#include "cc/observe/timeline.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <utility>

namespace tfhvd {
namespace {

// The number of rows for each rank: a rank's rows are together, if this is enough.
constexpr int64_t kRowsOfARank = 1 << 20;
// Greater than the number of ranks times kRowsOfARank: further rows of all ranks begin there.
constexpr int64_t kRowsOfAll = int64_t{1} << 44;

constexpr char kRank[] = "{rank}";

int64_t Nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string InCapitals(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return name;
}

// Returns "ALLREDUCE"; Adasum is an allreduce.
std::string PhaseName(Collective kind) {
  return InCapitals(CollectiveName(kind == Collective::kAdasum ? Collective::kAllReduce : kind));
}

// Returns the name that the user sees for a key.
std::string RowName(const Key& key) {
  if (key.process_set == 0) return key.name;
  return key.name + " (process set " + std::to_string(key.process_set) + ")";
}

std::string ArgsOf(const Request& request) {
  if (request.tensors.empty()) return {};
  int64_t bytes = 0;
  for (const TensorSpec& t : request.tensors) bytes += NumElements(t.shape) * ItemSize(t.dtype);
  const TensorSpec& first = request.tensors[0];
  std::string args = std::string("{\"dtype\": \"") + DTypeName(first.dtype) + "\", ";
  args += request.tensors.size() == 1 ? "\"shape\": " + ShapeString(first.shape)
                                      : "\"tensors\": " + std::to_string(request.tensors.size());
  return args + ", \"bytes\": " + std::to_string(bytes) + "}";
}

std::string ErrorArgs(const Status& status) {
  return status.ok() ? "" : "{\"error\": " + JsonString(status.message()) + "}";
}

}  // namespace

int64_t TimelineRow(int rank, int64_t row) {
  return row / kRowsOfARank * kRowsOfAll + rank * kRowsOfARank + row % kRowsOfARank;
}

Timeline::~Timeline() { (void)Stop(); }  // no caller takes an error

Status Timeline::Start(const std::string& path, bool mark_cycles) {
  const MutexLock lock(&mutex_);
  if (recording_) {
    return Status::InvalidArgument("A timeline is already being recorded to '" + path_ +
                                   "'. Call hvd.stop_timeline() before you start one in '" + path +
                                   "'.");
  }
  const size_t place = path.find(kRank);
  const bool everyone = place != std::string::npos;
  std::string own = path;
  if (everyone) own.replace(place, sizeof kRank - 1, std::to_string(rank_));
  if (everyone || rank_ == 0) {
    const auto epoch = std::chrono::system_clock::now().time_since_epoch();
    TraceEvent first;
    first.phase = 'M';
    first.nanoseconds = Nanoseconds();
    first.row = TimelineRow(rank_, 0);
    first.name = "process_name";
    first.args =
        "{\"name\": " + JsonString("rank " + std::to_string(rank_) + " on " + host_) +
        ", \"start_time_since_epoch_in_micros\": " +
        std::to_string(std::chrono::duration_cast<std::chrono::microseconds>(epoch).count()) + "}";
    TFHVD_RETURN_IF_ERROR(TraceFile::Open(own, std::move(first), &file_));
  }
  recording_ = true;
  mark_cycles_ = mark_cycles;
  path_ = path;
  lost_ = 0;
  on_.store(file_ != nullptr, std::memory_order_relaxed);
  return Status::Ok();
}

Status Timeline::Stop() {
  std::unique_ptr<TraceFile> file;
  {
    const MutexLock lock(&mutex_);
    on_.store(false, std::memory_order_relaxed);
    recording_ = false;
    if (file_ == nullptr) return Status::Ok();
    EndEverything();
    file = std::move(file_);
  }
  return file->Close();  // without the lock, for which the engine may wait
}

void Timeline::EndEverything() {
  for (auto& [id, live] : live_) GiveBack(live.row, &live.lane, {});
  for (auto& [key, row] : rows_) {
    if (row.others != nullptr) GiveBack(&row, row.others.get(), {});
  }
  live_.clear();
  rows_.clear();
  if (lost_ > 0) {
    TraceEvent event;
    event.phase = 'i';
    event.row = TimelineRow(rank_, 0);
    event.name = "LOST";
    event.args = "{\"phases\": " + std::to_string(lost_) + "}";
    Push(std::move(event), true);
  }
}

void Timeline::Submitted(const Entry& entry) {
  const MutexLock lock(&mutex_);
  if (file_ == nullptr) return;
  Row* const row = RowOf(entry.request->key);
  Live live;
  live.row = row;
  if (row->others != nullptr) {
    live.lane = std::move(*row->others);
    row->others.reset();
  } else {
    live.lane = TakeLane(row, entry.request->kind);
  }
  row->negotiated.push_back(entry.id);
  live_.emplace(entry.id, std::move(live));
}

void Timeline::RankReady(const Key& key, Collective kind, int rank, bool voted) {
  const MutexLock lock(&mutex_);
  if (file_ == nullptr) return;
  Row* const row = RowOf(key);
  if (voted && row->negotiated.empty()) return;  // submitted before the recording began
  Lane* lane = nullptr;
  if (!row->negotiated.empty()) {
    Live& live = live_.at(row->negotiated.front());
    live.voted = live.voted || voted;
    lane = &live.lane;
  } else {
    if (row->others == nullptr) row->others = std::make_unique<Lane>(TakeLane(row, kind));
    lane = row->others.get();
  }
  TraceEvent tick;
  tick.phase = 'X';
  tick.row = lane->row;
  tick.lane = lane->number;
  tick.name = Interned(std::to_string(rank));
  Push(std::move(tick), false);
}

void Timeline::TallyOver(const Key& key) {
  const MutexLock lock(&mutex_);
  const auto row = rows_.find(key);
  if (row == rows_.end() || row->second.others == nullptr) return;
  GiveBack(&row->second, row->second.others.get(), {});
  row->second.others.reset();
}

void Timeline::AgreedOn(const std::vector<Agreed>& together) {
  const MutexLock lock(&mutex_);
  if (file_ == nullptr) return;
  if (mark_cycles_) {
    TraceEvent mark;
    mark.phase = 'i';
    mark.row = TimelineRow(rank_, 0);
    mark.name = "CYCLE_START";
    Push(std::move(mark), false);
  }
  for (const Agreed& agreed : together) Agree(agreed);
}

void Timeline::Agree(const Agreed& agreed) {
  const auto found = live_.find(agreed.entry.id);
  if (found == live_.end()) return;
  Live& live = found->second;
  std::deque<EntryId>& waiting = live.row->negotiated;
  waiting.erase(std::remove(waiting.begin(), waiting.end(), agreed.entry.id), waiting.end());
  EndPhase(&live.lane, live.voted ? "{\"locked\": true}" : "");
  BeginPhase(&live.lane, PhaseName(agreed.entry.request->kind), ArgsOf(*agreed.entry.request));
  BeginPhase(&live.lane, "QUEUE");
  live.queued = true;
}

void Timeline::Begin(const std::vector<EntryId>& entries, const char* carrier, const char* call) {
  const std::string phase = InCapitals(carrier) + call;
  const MutexLock lock(&mutex_);
  for (const EntryId id : entries) {
    const auto found = live_.find(id);
    if (found == live_.end()) continue;
    Live& live = found->second;
    if (live.queued) EndPhase(&live.lane);
    live.queued = false;
    BeginPhase(&live.lane, phase);
  }
}

void Timeline::End(const std::vector<EntryId>& entries) {
  const MutexLock lock(&mutex_);
  for (const EntryId id : entries) {
    const auto found = live_.find(id);
    // The recording may have begun within the phase.
    if (found != live_.end() && !found->second.queued) EndPhase(&found->second.lane);
  }
}

void Timeline::Done(EntryId entry, const Status& status) {
  const MutexLock lock(&mutex_);
  const auto found = live_.find(entry);
  if (found == live_.end()) return;
  Live& live = found->second;
  std::deque<EntryId>& waiting = live.row->negotiated;
  waiting.erase(std::remove(waiting.begin(), waiting.end(), entry), waiting.end());
  GiveBack(live.row, &live.lane, ErrorArgs(status));
  live_.erase(found);
}

Timeline::Row* Timeline::RowOf(const Key& key) {
  const auto [found, is_new] = rows_.try_emplace(key);
  Row* const row = &found->second;
  if (!is_new) return row;
  row->number = TimelineRow(rank_, static_cast<int64_t>(rows_.size()));
  TraceEvent name;
  name.phase = 'M';
  name.row = row->number;
  name.name = "process_name";
  name.args = "{\"name\": " + JsonString(RowName(key)) + "}";
  Push(std::move(name), true);
  return row;
}

// Takes the first free lane of the row, and begins the negotiation.
Timeline::Lane Timeline::TakeLane(Row* row, Collective kind) {
  Lane lane;
  lane.row = row->number;
  while (lane.number < static_cast<int32_t>(row->taken.size()) && row->taken[lane.number]) {
    ++lane.number;
  }
  if (lane.number == static_cast<int32_t>(row->taken.size())) row->taken.push_back(false);
  row->taken[lane.number] = true;
  BeginPhase(&lane, "NEGOTIATE_" + PhaseName(kind));
  return lane;
}

// Ends the open phases of the lane, the outermost with `args`.
void Timeline::GiveBack(Row* row, Lane* lane, const std::string& args) {
  while (!lane->open.empty()) EndPhase(lane, lane->open.size() == 1 ? args : "");
  row->taken[lane->number] = false;
}

void Timeline::BeginPhase(Lane* lane, const std::string& name, std::string args) {
  TraceEvent begin;
  begin.row = lane->row;
  begin.lane = lane->number;
  begin.name = Interned(name);
  begin.args = std::move(args);
  const bool written = Push(std::move(begin), false);
  lane->open.push_back(written);
  if (!written) ++lost_;
}

void Timeline::EndPhase(Lane* lane, std::string args) {
  if (lane->open.empty()) return;
  const bool written = lane->open.back();
  lane->open.pop_back();
  if (!written) return;
  TraceEvent end;
  end.phase = 'E';
  end.row = lane->row;
  end.lane = lane->number;
  end.args = std::move(args);
  Push(std::move(end), true);
}

bool Timeline::Push(TraceEvent event, bool must) {
  event.nanoseconds = Nanoseconds();
  return file_->Push(std::move(event), must);
}

const char* Timeline::Interned(const std::string& name) {
  return names_.insert(name).first->c_str();
}

}  // namespace tfhvd
