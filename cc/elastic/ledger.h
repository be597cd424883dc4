// Ledger: what a rank knows of its collectives that others may need once a rank is lost: which it
// waits for, and the results that others may lack. Pure: no threads, no communication.
//
// Collectives of one key follow each other in the same order on all ranks; a collective is named by
// its key and its turn, which is how many of that key were done before it. A rank that has joined
// takes part in collectives that it does not count: once all have joined, all count anew. A process
// that comes later takes over how many of each key the others have counted. A collective that has
// failed on all ranks (Status::by_agreement) has its turn, and its failure is copied as a result
// is: otherwise a rank that has not learned of it would take the next collective of that name for
// it.
//
// All count anew also after each barrier (below), so that names which do not come again cost
// nothing in the long run. A rank may be lost before all have passed a barrier: whoever is behind
// counts anew as the survivors meet, for that another one has passed it proves that this rank had
// done all before.
//
// A result is dropped once all ranks have it. An engine runs calls one after the other, in the same
// order on all ranks, and a call that needs every rank's data ends only when every rank has begun
// it. So where such a collective, submitted after a result was there, is done, every rank has that
// result. And a barrier follows where results have come to some size, whichever collectives they
// are of (Executor::BarrierEvery).
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

// A collective, whichever rank it is of.
struct Turn {
  std::string name;  // of set 0
  int64_t number = 0;

  bool operator<(const Turn& o) const { return name != o.name ? name < o.name : number < o.number; }
  bool operator==(const Turn& o) const { return name == o.name && number == o.number; }
};

// The outcome of a collective as one rank has it, to be copied to others.
struct Outcome {
  Turn turn;
  std::vector<Shape> shapes;                     // by tensor, of the results
  std::vector<int64_t> bytes;                    // likewise
  std::vector<std::vector<int64_t>> first_dims;  // allgather: see Decision
  int64_t number = 0;                            // join: see Decision
  bool copies = true;  // whether the result of one rank is that of another
  Status failure;      // not ok: the collective has failed with this on all ranks
};

// What a rank tells the others.
struct Position {
  int64_t barriers = 0;     // passed
  bool is_new = false;      // it has not been in the job before, and has counted nothing
  bool lost_some = false;   // a rank that it knows is not there any more
  bool by_commits = false;  // where that is so, all go back to what they have kept: see ElasticJob
  std::vector<Turn> waits;
  std::vector<Outcome> has;
};
std::string Encode(const Position& position);
Status Decode(const std::string& bytes, Position* position);

// An outcome that `root` has and another rank waits for.
struct Copy {
  int root = 0;
  Outcome outcome;
};
// What is to be copied, in the same order on all ranks; `positions` by rank, all having passed
// equally many barriers.
std::vector<Copy> CopiesOf(const std::vector<Position>& positions);

// Has all positions be behind the last barrier that any rank has passed. How many that are.
int64_t CatchUp(std::vector<Position>* positions);

// What only the ranks together know of a result.
struct FoundTogether {
  std::vector<Shape> shapes;                     // by tensor, of outputs that are allocated late
  std::vector<void*> outputs;                    // likewise
  std::vector<std::vector<int64_t>> first_dims;  // allgather: see Decision
  int64_t number = 0;                            // join: see Decision
};

class Ledger {
 public:
  // A result that is held. Every collective of a step makes one, and nobody asks for it unless a
  // rank is lost: so it is what there is anyway, and says what it is when it is asked.
  struct Result {
    SharedRequest request;
    std::unique_ptr<FoundTogether> found;  // null: the request says it all
    InlineVector<const void*, 1> data;     // by tensor
    std::shared_ptr<void> memory;          // keeps them
    Status failure;  // not ok: there is none, the collective has failed on all ranks
    int64_t turn = 0;
    uint64_t next_entry = 0;  // the number of the entry that came next, when this was done

    // Whether all ranks have the same, so that who lacks it gets a copy.
    bool copies() const;
    Outcome outcome() const;
    // Copies the bytes of all tensors, one after the other: as many as the outcome says.
    void CopyTo(char* to) const;
  };

  // The turn of the `nth` entry of a name (from 0) among those that wait, in their order.
  Turn TurnOf(const std::string& name, int64_t nth) const;

  // The next collective of the name of this result's request is done. `entry`: its number;
  // `next_entry`: see Result.
  void Done(Result&& result, uint64_t entry, uint64_t next_entry);

  // A barrier has been passed: all ranks have every result.
  void LetGo();
  // The same, as others have passed so many by now.
  void CatchUp(int64_t barriers) {
    if (barriers > barriers_) LetGo();
  }
  int64_t barriers() const { return barriers_; }
  // Of how many names there is something to remember.
  size_t names() const { return counts_.size(); }

  // How many of each name are done, and the same taken over by a process that is new.
  std::string EncodeCounts() const;
  Status TakeOverCounts(const std::string& bytes);

  // The results that are held, the oldest first.
  const std::deque<Result>& results() const { return results_; }
  // Null where it is not held.
  const Result* Find(const Turn& turn) const;

 private:
  static constexpr size_t kFewCounts = 4096;

  // Of one name.
  struct Count {
    int64_t round = 0;  // of the last time: only what is done in one round is counted
    int64_t done = 0;
    SharedRequest request;  // the latest that was
    Count* next = nullptr;  // Not owned: the one that was counted next when this was the latest.
  };

  int64_t NumberOf(int64_t done) const;
  int64_t DoneOf(const Count& count) const { return count.round == round_ ? count.done : 0; }
  void Forget();
  Count* CountOf(const SharedRequest& request);

  std::unordered_map<std::string, Count> counts_;  // by name
  Count* latest_ = nullptr;                        // Not owned: among those.
  size_t most_counts_ = kFewCounts;                // then it is looked which may be forgotten
  int64_t round_ = 0;                              // of this rank: of joins and barriers
  int64_t joins_ = 0;                              // of all ranks, since the last barrier
  int64_t barriers_ = 0;
  std::deque<Result> results_;
};

// Whether a collective ends only once every rank has brought its data.
bool MeetsAll(const Request& request);

}  // namespace tfhvd
