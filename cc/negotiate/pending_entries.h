// PendingEntries: this rank's entries that are not decided yet, by key, and what of them is still
// to be announced. The first entry of a key is announced, the others wait behind it.
//
// A step that fails may cancel all of its tensors: a cancellation takes the same time however many
// entries are pending.
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
  // The entries of one key. Kept, though there are none, as long as the cache knows the key: most
  // likely it comes again.
  struct Pending {
    EntryQueue entries;            // keeps its memory from step to step
    CacheId announced_as = kNoId;  // the first one; kNoId: in full
    size_t index_in_next = 0;      // of the first one, in its list in *next_, while it is there
    bool withdrawing = false;      // the first one was cancelled; the coordinator has the last word
    bool known = false;            // to the cache
  };
  using Map = std::unordered_map<Key, Pending, KeyHash>;
  using Node = Map::value_type;  // keeps its address

  // Announcements and withdrawals are put into `*next`, which must outlive this object. Its sender
  // empties its lists.
  explicit PendingEntries(Announcement* next) : next_(next) {}

  // Told how entries are announced; not owned, may be null.
  void SetObserver(Observer* observer) { observer_ = observer; }

  // Takes the entry, and announces it if it is the first of its key. Returns false, and leaves the
  // entry, if its name is in flight already.
  bool Add(Entry* entry);

  // Takes an entry back. Returns it; nullopt if it is over already, or if the coordinator knows of
  // it and has the last word.
  std::optional<Entry> Cancel(EntryId id);

  // Returns the entries of a key; null if there are none.
  Node* Find(const Key& key);

  // Moves the first entry out, and announces the next one of its key. `node` may be gone then.
  void TakeFirst(Node* node, Entry* entry);
  // The same for an entry that was decided as `decision`, which has the number `id` from now on.
  void TakeFirst(Node* node, CacheId id, const Decision& decision, Entry* entry);

  // Ends the withdrawal of the first entry of a key, and moves that out. Returns nullopt if this
  // rank has not asked for it.
  std::optional<Entry> EndWithdrawal(const Key& key);

  // Takes back all announcements, sent or not: no other rank counts on an entry any more. Returns
  // those that were to be withdrawn.
  std::vector<Entry> UnannounceAll();

  // Forgets what was decided under a number.
  void Forget(CacheId id);

  // Takes out all entries, in order of submission.
  std::vector<Entry> TakeAll();

  // Returns any of the entries. REQUIRES: not empty.
  const Entry& any() const;

  bool empty() const { return keys_ == 0; }
  size_t keys() const { return keys_; }  // that have entries
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
  // The node of each entry. Most programs cancel nothing: the first cancellation fills the map,
  // from then on Add and Pop keep it up to date, and it is dropped once nothing is pending.
  std::unordered_map<EntryId, Node*> node_of_;
  bool has_node_of_ = false;
  // The owners of the announcements in next_->known and next_->requests, by their indices there.
  // Items beyond the ends of those lists are stale.
  std::vector<Pending*> known_owners_;
  std::vector<Pending*> request_owners_;
};

}  // namespace tfhvd
