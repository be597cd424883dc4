#include "cc/observe/flight_record.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

namespace tfhvd {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr size_t kSlotsAt = sizeof(FlightHeader);
constexpr size_t kTextAt = kSlotsAt + FlightRecord::kSlots * sizeof(FlightSlot);

int64_t Nanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

std::string NameFor(const Key& key) {
  if (key.process_set == 0) return key.name;
  return key.name + " (process set " + std::to_string(key.process_set) + ")";
}

// Returns the lowest pid of this host's ranks, which is the same for all of them.
int LeaderOf(const Topology& topology) {
  int leader = 0;
  for (const int pid : topology.pids) {
    if (pid > 0 && (leader == 0 || pid < leader)) leader = pid;
  }
  return leader;
}

}  // namespace

FlightRecord::FlightRecord(const Topology& topology)
    : memory_("tfhvd-flight", kTextAt + kTextBytes) {
  if (memory_.data() == nullptr) return;  // no reason to stop the training
  header_ = new (memory_.data()) FlightHeader();
  slots_ = reinterpret_cast<FlightSlot*>(memory_.data() + kSlotsAt);
  text_ = memory_.data() + kTextAt;
  header_->version = kFlightVersion;
  header_->header_bytes = sizeof(FlightHeader);
  header_->slots = kSlots;
  header_->slot_bytes = sizeof(FlightSlot);
  header_->text_bytes = kTextBytes;
  header_->rank = topology.rank;
  header_->size = topology.size;
  header_->pid = getpid();
  header_->leader = LeaderOf(topology);
  header_->began = Nanoseconds();
  header_->began_unix =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  const std::string& host = topology.hosts[static_cast<size_t>(topology.rank)];
  host.copy(header_->host, sizeof header_->host - 1);
  std::memcpy(header_->magic, kFlightMagic, sizeof kFlightMagic);
  on_.store(true);
}

void FlightRecord::At(int64_t epoch, int64_t step) {
  if (header_ == nullptr) return;
  header_->epoch.store(epoch, kRelaxed);
  header_->step.store(step, kRelaxed);
}

void FlightRecord::Watched(std::chrono::nanoseconds lasting) {
  if (header_ == nullptr) return;
  header_->tells_until.store(Nanoseconds() + lasting.count(), kRelaxed);
}

FlightSlot* FlightRecord::SlotOf(EntryId id) const {
  FlightSlot* const slot = &slots_[id % kSlots];
  return id != 0 && slot->id.load(kRelaxed) == id ? slot : nullptr;
}

void FlightRecord::Submitted(const Entry& entry) {
  FlightSlot* const slot = &slots_[entry.id % kSlots];
  const int64_t now = Nanoseconds();
  const Known& known = KnownOf(entry.request);
  slot->id.store(0, std::memory_order_release);
  slot->submitted.store(now, kRelaxed);
  slot->agreed.store(0, kRelaxed);
  slot->began.store(0, kRelaxed);
  slot->ended.store(0, kRelaxed);
  slot->bytes.store(known.bytes, kRelaxed);
  slot->name.store(known.name, kRelaxed);
  slot->phase.store(0, kRelaxed);
  slot->waited_for.store(-1, kRelaxed);
  slot->tensors.store(known.tensors, kRelaxed);
  slot->kind.store(static_cast<uint8_t>(known.kind), kRelaxed);
  slot->state.store(FlightState::kPending, kRelaxed);
  slot->id.store(entry.id, std::memory_order_release);
  header_->submitted.store(entry.id, kRelaxed);
  header_->submitted_at.store(now, kRelaxed);
}

void FlightRecord::WaitedFor(EntryId entry, int rank) {
  FlightSlot* const slot = SlotOf(entry);
  if (slot != nullptr) slot->waited_for.store(rank, kRelaxed);
}

void FlightRecord::AgreedOn(const std::vector<Agreed>& together) {
  const int64_t now = Nanoseconds();
  for (const Agreed& agreed : together) {
    FlightSlot* const slot = SlotOf(agreed.entry.id);
    if (slot != nullptr) slot->agreed.store(now, kRelaxed);
  }
}

void FlightRecord::Begin(const std::vector<EntryId>& entries, const char* carrier,
                         const char* call) {
  const uint32_t phase = PhaseOf(carrier, call);
  int64_t now = 0;
  for (const EntryId id : entries) {
    FlightSlot* const slot = SlotOf(id);
    if (slot == nullptr) continue;
    slot->phase.store(phase, kRelaxed);
    if (slot->began.load(kRelaxed) != 0) continue;
    if (now == 0) now = Nanoseconds();
    slot->began.store(now, kRelaxed);
  }
}

void FlightRecord::End(const std::vector<EntryId>&) { phase_ended_.store(Nanoseconds(), kRelaxed); }

void FlightRecord::Done(EntryId entry, const Status& status) {
  FlightSlot* const slot = SlotOf(entry);
  const bool ran = status.ok() && slot != nullptr && slot->began.load(kRelaxed) != 0;
  const int64_t now = ran ? phase_ended_.load(kRelaxed) : Nanoseconds();
  if (slot != nullptr) {
    slot->ended.store(now, kRelaxed);
    slot->state.store(status.ok() ? FlightState::kOk : FlightState::kFailed, kRelaxed);
  }
  if (entry == 0) return;  // another rank's
  header_->done.store(header_->done.load(kRelaxed) + 1, kRelaxed);
  header_->done_at.store(now, kRelaxed);
}

// A program uses few requests, and repeats them.
const FlightRecord::Known& FlightRecord::KnownOf(const SharedRequest& shared) {
  // Hashes with the upper bits of a product, which depend on all bits of the address: requests that
  // are made one after the other have nearly equal distances.
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(shared.get()));
  auto& together = known_[(address * 0x9E3779B97F4A7C15 >> 32) % known_.size()];
  for (const Known& known : together) {
    if (shared.Is(known.request)) return known;
  }
  std::move_backward(together.begin(), together.end() - 1, together.end());
  Known* const known = &together.front();
  const Request& request = *shared;
  known->request = shared.identity();
  known->bytes = BytesOf(request);
  known->tensors = static_cast<uint16_t>(std::min<size_t>(request.tensors.size(), UINT16_MAX));
  known->kind = request.kind;
  const MutexLock lock(&mutex_);
  known->name = Interned(NameFor(request.key) + '\0' + request.origin);
  return *known;
}

uint32_t FlightRecord::PhaseOf(const char* carrier, const char* call) {
  const size_t used = phases_used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    if (phases_[i].carrier == carrier && phases_[i].call == call) return phases_[i].text;
  }
  const MutexLock lock(&mutex_);
  const uint32_t text = Interned(std::string(carrier) + call);
  const size_t last = phases_used_.load(kRelaxed);
  if (last < phases_.size()) {
    phases_[last] = {carrier, call, text};
    phases_used_.store(last + 1, std::memory_order_release);
  }
  return text;
}

uint32_t FlightRecord::Interned(std::string text) {
  const auto found = places_.find(text);
  if (found != places_.end()) return found->second;
  const size_t bytes = text.size() + 1;
  if (bytes > kTextBytes - text_used_) return 0;
  const uint32_t place = text_used_;
  std::memcpy(text_ + place, text.c_str(), bytes);
  text_used_ += static_cast<uint32_t>(bytes);
  places_.emplace(std::move(text), place);
  return place;
}

}  // namespace tfhvd
