// The Negotiator's part that cancels entries. A step that fails may cancel all of its tensors, so a
// cancellation takes the same time however many entries are pending.
#include <utility>

#include "cc/negotiate/negotiator.h"

namespace tfhvd {
namespace {

// Removes the item at `index` from one of the lists of what is to be announced, and moves the last
// item there. `owners` names the owner of each.
template <typename T, typename Pending>
void Remove(size_t index, std::vector<T>* list, std::vector<Pending*>* owners) {
  const size_t last = list->size() - 1;
  std::swap((*list)[index], (*list)[last]);
  (*owners)[index] = (*owners)[last];
  (*owners)[index]->index_in_next = index;
  list->pop_back();
}

}  // namespace

void Negotiator::Cancel(EntryId id, Outcome* outcome) {
  Node* const node = FindPending(id);
  if (node == nullptr) return;  // over already
  Pending& pending = node->second;
  const bool first = pending.entries.front().id == id;
  if (first && !TakeBack(pending)) {
    // The coordinator knows of it and has the last word.
    if (!pending.withdrawing) next_.withdrawn.push_back(node->first);
    pending.withdrawing = true;
    return;
  }
  const Status cancelled = Status::Cancelled("the operation was cancelled");
  if (first) {
    outcome->failed.emplace_back(std::move(pending.entries.front()), cancelled);
    Finish(node);
  } else {
    node_of_.erase(id);
    outcome->failed.emplace_back(pending.entries.Take(id), cancelled);
  }
}

// The node that the entry `id` waits in; null where the entry is not pending any more.
Negotiator::Node* Negotiator::FindPending(EntryId id) {
  if (idle()) return nullptr;
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

// Removes the first entry from what is still to be announced; false where it has been announced.
bool Negotiator::TakeBack(const Pending& pending) {
  const size_t index = pending.index_in_next;
  if (pending.announced_as != kNoId) {
    if (index >= next_.known.size() || known_owners_[index] != &pending) return false;
    Remove(index, &next_.known, &known_owners_);
  } else {
    if (index >= next_.requests.size() || request_owners_[index] != &pending) return false;
    Remove(index, &next_.requests, &request_owners_);
  }
  return true;
}

}  // namespace tfhvd
