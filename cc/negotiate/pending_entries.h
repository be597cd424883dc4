// PendingEntries: this rank's undecided entries, by key, and the announcements of them that are
// still to be sent. The first entry of a key is announced, the others wait behind it.
//
// A failed step may cancel all of its tensors, so a cancellation takes the same time for any number
// of pending entries.
//
// Used by the engine's thread only.
#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cc/flow/decision.h"
#include "cc/flow/entry.h"
#include "cc/flow/messages.h"
#include "cc/flow/observer.h"
#include "cc/flow/request.h"
#include "cc/negotiate/entry_queue.h"
#include "cc/negotiate/response_cache.h"

namespace tfhvd {

class PendingEntries {
 public:
  // The entries of one key. An empty list is kept as long as the cache knows the key: it most
  // likely comes again.
  struct Pending {
    EntryQueue entries;            // keeps its memory from step to step
    CacheId announced_as = kNoId;  // number of the first entry; kNoId: in full
    size_t index_in_next = 0;      // of the first entry in its list in *next_, until it is sent
    bool withdrawing = false;      // the first entry was cancelled; the coordinator decides
    bool known = false;            // the cache knows the key
  };
  using Map = std::unordered_map<Key, Pending, KeyHash>;
  using Node = Map::value_type;  // keeps its address

  // Puts announcements and withdrawals into `*next`, which must outlive this object. The sender
  // empties its lists.
  explicit PendingEntries(Announcement* next) : next_(next) {}

  // The observer learns how entries are announced; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Takes the entry, and announces it if it is the first of its key. Returns false, and leaves the
  // entry unchanged, if its name is in flight already.
  bool Add(Entry* entry);

  // Takes an entry back and returns it; nullopt if it is over already, or if the coordinator knows
  // it and must decide.
  std::optional<Entry> Cancel(EntryId id);

  // Returns the entries of a key; null if there are none.
  Node* Find(const Key& key);

  // Moves the first entry out, and announces the next one of its key. `node` may be gone
  // afterwards.
  void TakeFirst(Node* node, Entry* entry);
  // Likewise for an entry that was decided as `decision` and has the number `id` from now on.
  void TakeFirst(Node* node, CacheId id, const Decision& decision, Entry* entry);

  // Ends the withdrawal of the first entry of a key, and moves the entry out. Returns nullopt if
  // this rank has not asked for a withdrawal.
  std::optional<Entry> EndWithdrawal(const Key& key);

  // Takes back all announcements, sent or not: no other rank relies on an entry any more. Returns
  // the entries that were being withdrawn.
  std::vector<Entry> UnannounceAll();

  // Forgets the decision under a number.
  void Forget(CacheId id);

  // Removes and returns all entries, in order of submission.
  std::vector<Entry> TakeAll();

  // Returns any of the entries. REQUIRES: not empty.
  const Entry& any() const;

  bool empty() const { return keys_ == 0; }
  size_t keys() const { return keys_; }  // number of keys with entries
  const ResponseCache& cache() const { return cache_; }

 private:
  void Announce(Pending* pending);
  Node* FindEntry(EntryId id);
  bool TakeBack(const Pending& pending);
  void Finish(Node* node);
  bool Pop(Node* node);

  Announcement* const next_;      // Not owned.
  Observer* observer_ = nullptr;  // Not owned.
  Map pending_;
  size_t keys_ = 0;
  ResponseCache cache_;
  // The node of each entry. Most programs cancel nothing, so the first cancellation fills the map;
  // from then on Add and Pop keep it up to date, and it is dropped when nothing is pending.
  std::unordered_map<EntryId, Node*> node_of_;
  bool has_node_of_ = false;
  // The owners of the announcements in next_->known and next_->requests, by their indices there.
  // Items beyond the ends of those lists are stale.
  std::vector<Pending*> known_owners_;
  std::vector<Pending*> request_owners_;
};

}  // namespace tfhvd
