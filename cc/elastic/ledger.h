// Ledger: a rank's record of its collectives that the others need when a rank fails: those that it
// waits for, and the results that other ranks may lack. Pure: no threads, no communication.
//
// Collectives of one key follow each other in the same order on all ranks. A collective is
// identified by its key and its sequence number: the number of collectives of that key that were
// done before it. A rank that has joined (hvd.join) participates in collectives that it does not
// count; once all ranks have joined, all start to count from zero. A process that joins the job
// later takes over the others' counts. A collective that has failed on all ranks
// (Status::by_agreement) has its sequence number, and its failure is copied like a result:
// otherwise a rank that has not learned of it would mistake the next collective of that name for
// it.
//
// All ranks also start to count from zero after each barrier (below), so that names that do not
// come again cost nothing in the long run. A rank may fail before all ranks have passed a barrier.
// Then those that are behind start from zero when the survivors exchange their positions: since
// another rank has passed the barrier, they had done all earlier collectives.
//
// A result is dropped once all ranks have it. An engine runs calls one after the other, in the same
// order on all ranks, and a call that needs every rank's data ends only after every rank has begun
// it. So when such a collective, submitted after a result existed, is done, every rank has that
// result. In addition, a barrier follows when the results have reached some size, for any kind of
// collectives (Executor::BarrierEvery).
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/inline_vector.h"
#include "cc/base/status.h"
#include "cc/flow/entry.h"
#include "cc/flow/request.h"

namespace tfhvd {

// Identifies a collective on all ranks.
struct CollectiveSeq {
  std::string name;  // in process set 0
  int64_t number = 0;

  bool operator<(const CollectiveSeq& o) const {
    return name != o.name ? name < o.name : number < o.number;
  }
  bool operator==(const CollectiveSeq& o) const { return name == o.name && number == o.number; }
};

// The result of a collective on one rank, to be copied to others.
struct ResultRecord {
  CollectiveSeq seq;
  std::vector<Shape> shapes;                     // of the results, by tensor
  std::vector<int64_t> bytes;                    // of the results, by tensor
  std::vector<std::vector<int64_t>> first_dims;  // allgather: see Decision
  int64_t number = 0;                            // join: see Decision
  bool copies = true;                            // all ranks have equal results
  Status failure;  // not ok: the collective has failed with this on all ranks
};

// The message of one rank to the others.
struct Position {
  int64_t barriers = 0;     // number of barriers passed
  bool is_new = false;      // the rank was not in the job before, and has no counts
  bool lost_some = false;   // a rank that it knew is no longer there
  bool by_commits = false;  // the job goes by commits, as far as this rank knows: see ElasticJob
  std::vector<CollectiveSeq> waits;
  std::vector<ResultRecord> has;
};
std::string Encode(const Position& position);
Status Decode(const std::string& bytes, Position* position);

// A record that `root` has and another rank waits for.
struct Copy {
  int root = 0;
  ResultRecord record;
};
// Returns the records to copy, in the same order on all ranks. `positions`: by rank; all have
// passed equally many barriers.
std::vector<Copy> CopiesOf(const std::vector<Position>& positions);

// Moves all positions behind the last barrier that any rank has passed; returns the number of
// barriers.
int64_t CatchUp(std::vector<Position>* positions);

// The part of a result that only all ranks together determine.
struct FoundTogether {
  std::vector<Shape> shapes;                     // by tensor, of outputs that are allocated late
  std::vector<void*> outputs;                    // by tensor, of outputs that are allocated late
  std::vector<std::vector<int64_t>> first_dims;  // allgather: see Decision
  int64_t number = 0;                            // join: see Decision
};

class Ledger {
 public:
  // A stored result. Every collective of a step makes one, and it is read only if a rank fails.
  // Therefore it refers to existing memory, and describes itself only when asked.
  struct Result {
    SharedRequest request;
    std::unique_ptr<FoundTogether> found;  // null: the request has all the information
    InlineVector<const void*, 1> data;     // by tensor
    std::shared_ptr<void> memory;          // keeps `data` alive
    Status failure;  // not ok: no result, the collective has failed on all ranks
    int64_t seq = 0;
    uint64_t next_entry = 0;  // the number of the next entry when this one was done

    // Returns whether all ranks have equal results, so that ranks without it get a copy.
    bool copies() const;
    ResultRecord record() const;
    // Copies the bytes of all tensors, one after the other: as many as record() says.
    void CopyTo(char* to) const;
  };

  // Returns the sequence number of the `nth` waiting entry of a name, counted from 0 in their
  // order.
  CollectiveSeq SeqOf(const std::string& name, int64_t nth) const;

  // Records that the next collective of the name in this result's request is done. `entry`: its
  // number; `next_entry`: see Result.
  void Done(Result&& result, uint64_t entry, uint64_t next_entry);

  // Records that a barrier has been passed: all ranks have every result.
  void LetGo();
  // Records a barrier that others have passed: `barriers` is their count.
  void CatchUp(int64_t barriers) {
    if (barriers > barriers_) LetGo();
  }
  int64_t barriers() const { return barriers_; }
  // Returns how many names are stored.
  size_t names() const { return counts_.size(); }

  // EncodeCounts returns how many collectives of each name are done; a new process takes these
  // counts over.
  std::string EncodeCounts() const;
  Status AdoptCounts(const std::string& bytes);

  // Returns the stored results, the oldest first.
  const std::deque<Result>& results() const { return results_; }
  // Returns null if the result is not stored.
  const Result* Find(const CollectiveSeq& seq) const;

 private:
  static constexpr size_t kFewCounts = 4096;

  // The count of one name.
  struct Count {
    int64_t round = 0;  // of the last collective; only those of one round count
    int64_t done = 0;
    SharedRequest request;  // of the latest collective
    Count* next = nullptr;  // Not owned: the count that followed this one last time.
  };

  int64_t NumberOf(int64_t done) const;
  int64_t DoneOf(const Count& count) const { return count.round == round_ ? count.done : 0; }
  void Forget();
  Count* CountOf(const SharedRequest& request);

  std::unordered_map<std::string, Count> counts_;  // by name
  Count* latest_ = nullptr;                        // Not owned: in counts_.
  size_t most_counts_ = kFewCounts;                // beyond this, Forget looks for unused names
  int64_t round_ = 0;                              // of this rank: number of joins and barriers
  int64_t joins_ = 0;                              // of all ranks, since the last barrier
  int64_t barriers_ = 0;
  std::deque<Result> results_;
};

// Returns whether a collective ends only after every rank has sent its data.
bool MeetsAll(const Request& request);

}  // namespace tfhvd
