#include "cc/negotiate/pending_entries.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tfhvd {
namespace {

// Removes the item at `index` from a list of announcements, and moves the last item there. `owners`
// holds the owner of each item.
template <typename T, typename Pending>
void Remove(size_t index, std::vector<T>* list, std::vector<Pending*>* owners) {
  const size_t last = list->size() - 1;
  std::swap((*list)[index], (*list)[last]);
  (*owners)[index] = (*owners)[last];
  (*owners)[index]->index_in_next = index;
  list->pop_back();
}

}  // namespace

bool PendingEntries::Add(Entry* entry) {
  Node* const node = &*pending_.try_emplace(entry->request->key).first;
  Pending& pending = node->second;
  const bool is_new = pending.entries.empty();
  const bool only_one_withdrawn = pending.withdrawing && pending.entries.size() == 1;
  if (!is_new && !only_one_withdrawn && !(entry->anonymous && pending.entries.back().anonymous)) {
    return false;
  }
  if (has_node_of_) node_of_[entry->id] = node;
  pending.entries.push_back(std::move(*entry));
  if (!is_new) return true;
  ++keys_;
  Announce(&pending);
  return true;
}

void PendingEntries::Announce(Pending* pending) {
  const Entry& entry = pending->entries.front();
  pending->announced_as = cache_.Find(entry.request);
  const bool known = pending->announced_as != kNoId;
  pending->known = pending->known || known;
  if (observer_ != nullptr && observer_->on()) observer_->Announced(known);
  if (known) {
    pending->index_in_next = next_->known.size();
    known_owners_.resize(next_->known.size());
    known_owners_.push_back(pending);
    next_->known.push_back(pending->announced_as);
  } else {
    pending->index_in_next = next_->requests.size();
    request_owners_.resize(next_->requests.size());
    request_owners_.push_back(pending);
    next_->requests.push_back(*entry.request);
  }
}

std::optional<Entry> PendingEntries::Cancel(EntryId id) {
  Node* const node = FindEntry(id);
  if (node == nullptr) return std::nullopt;
  Pending& pending = node->second;
  if (pending.entries.front().id != id) {
    node_of_.erase(id);
    return pending.entries.Take(id);
  }
  if (!TakeBack(pending)) {
    if (!pending.withdrawing) next_->withdrawn.push_back(node->first);
    pending.withdrawing = true;
    return std::nullopt;
  }
  Entry entry;
  TakeFirst(node, &entry);
  return entry;
}

// Returns the node of the entry `id`; null if it is not pending.
PendingEntries::Node* PendingEntries::FindEntry(EntryId id) {
  if (empty()) return nullptr;
  if (!has_node_of_) {
    has_node_of_ = true;
    node_of_.clear();
    for (Node& node : pending_) {
      node.second.entries.ForEachId([&](EntryId each) { node_of_[each] = &node; });
    }
  }
  const auto found = node_of_.find(id);
  return found == node_of_.end() ? nullptr : found->second;
}

// Removes the first entry from the unsent announcements; returns false if it has been sent.
bool PendingEntries::TakeBack(const Pending& pending) {
  const size_t index = pending.index_in_next;
  if (pending.announced_as != kNoId) {
    if (index >= next_->known.size() || known_owners_[index] != &pending) return false;
    Remove(index, &next_->known, &known_owners_);
  } else {
    if (index >= next_->requests.size() || request_owners_[index] != &pending) return false;
    Remove(index, &next_->requests, &request_owners_);
  }
  return true;
}

PendingEntries::Node* PendingEntries::Find(const Key& key) {
  const auto found = pending_.find(key);
  return found == pending_.end() || found->second.entries.empty() ? nullptr : &*found;
}

void PendingEntries::TakeFirst(Node* node, Entry* entry) {
  *entry = std::move(node->second.entries.front());
  Finish(node);
}

void PendingEntries::TakeFirst(Node* node, CacheId id, const Decision& decision, Entry* entry) {
  *entry = std::move(node->second.entries.front());
  cache_.Put(id, entry->request, decision);
  node->second.known = true;
  Finish(node);
}

// Called when the first entry is gone: announces the next one of that key.
void PendingEntries::Finish(Node* node) {
  if (!Pop(node)) Announce(&node->second);
}

// Removes the first entry; returns true if it was the last one: then `node` may be gone.
bool PendingEntries::Pop(Node* node) {
  EntryQueue& entries = node->second.entries;
  if (has_node_of_) node_of_.erase(entries.front().id);
  entries.pop_front();
  node->second.withdrawing = false;
  if (!entries.empty()) return false;
  if (--keys_ == 0) has_node_of_ = false;
  if (!node->second.known) pending_.erase(pending_.find(node->first));
  return true;
}

std::optional<Entry> PendingEntries::EndWithdrawal(const Key& key) {
  Node* const node = Find(key);
  if (node == nullptr || !node->second.withdrawing) return std::nullopt;
  Entry entry;
  TakeFirst(node, &entry);
  return entry;
}

std::vector<Entry> PendingEntries::UnannounceAll() {
  next_->known.clear();
  next_->requests.clear();
  next_->withdrawn.clear();
  std::vector<Entry> withdrawn;
  for (auto pending = pending_.begin(); pending != pending_.end();) {
    const auto next = std::next(pending);
    if (pending->second.withdrawing) {
      withdrawn.push_back(std::move(pending->second.entries.front()));
      Pop(&*pending);
    }
    pending = next;
  }
  return withdrawn;
}

void PendingEntries::Forget(CacheId id) {
  const ResponseCache::Record* record = cache_.Get(id);
  if (record == nullptr) return;
  const auto pending = pending_.find(record->request->key);
  if (pending != pending_.end()) {
    pending->second.known = false;
    if (pending->second.entries.empty()) pending_.erase(pending);
  }
  cache_.Erase(id);
}

std::vector<Entry> PendingEntries::TakeAll() {
  std::vector<Entry> all;
  for (auto& [key, pending] : pending_) pending.entries.TakeAll(&all);
  pending_.clear();
  keys_ = 0;
  has_node_of_ = false;
  SortById(&all);
  return all;
}

const Entry& PendingEntries::any() const {
  const auto one = std::find_if(pending_.begin(), pending_.end(),
                                [](const auto& p) { return !p.second.entries.empty(); });
  return one->second.entries.front();
}

}  // namespace tfhvd
