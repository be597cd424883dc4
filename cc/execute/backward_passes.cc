#include "cc/execute/backward_passes.h"

#include <set>

namespace tfhvd {

void BackwardPasses::End(Entry entry, const Status& status, bool on_accelerator) {
  const EntryExtras& extras = entry.extras();
  if (extras.backward_pass.empty() || accelerator_ == nullptr) return entry.done(status);
  const std::pair<int32_t, std::string> name(entry.request->key.process_set, extras.backward_pass);
  Pass& pass = held_[name];
  const bool whole = ++pass.ended == extras.buckets || !status.ok();
  std::vector<Entry> ended;
  if (whole) {
    ended = std::move(pass.on_accelerator);
    held_.erase(name);
  }
  if (!on_accelerator) {
    entry.done(status);
  } else if (whole) {
    ended.push_back(std::move(entry));
  } else {
    pass.on_accelerator.push_back(std::move(entry));
  }
  Release(&ended, status);
}

// Makes the framework's streams wait for all work of the accelerator, whether or not it failed: the
// framework may reuse the memory.
void BackwardPasses::Release(std::vector<Entry>* entries, const Status& status) {
  std::set<void*> streams;  // mostly a single one
  for (const Entry& entry : *entries) streams.insert(entry.extras().stream);
  for (void* const stream : streams) (void)accelerator_->Release(stream);
  for (Entry& entry : *entries) entry.done(status);
}

void BackwardPasses::ReleaseAll(const Status& status) {
  std::map<std::pair<int32_t, std::string>, Pass> held;
  held.swap(held_);
  for (auto& [name, pass] : held) Release(&pass.on_accelerator, status);
}

}  // namespace tfhvd
