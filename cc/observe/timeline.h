// Timeline: records what becomes of every entry, as Horovod's timeline does, into a TraceFile.
//
// A row for each tensor, or group of tensors, with the phases
//
//   NEGOTIATE_ALLREDUCE                 from this rank's call, or the first other's, to the
//                                       agreement; a tick for each rank as it becomes ready
//   ALLREDUCE                           from the agreement to the result
//     QUEUE                             others that were agreed on before are executed
//     MEMCPY_IN_FUSION_BUFFER
//     SHM_ALLREDUCE, MPI_BCAST, ...     the call: what carries it, and what it is
//     MEMCPY_OUT_FUSION_BUFFER
//
// (ALLGATHER and so on likewise.) In a locked step the ranks vote without messages: then the
// end of the first phase says "locked", and the ticks are the votes, which every rank sees. Rank 0
// alone sees announcements. Phases on an accelerator are those of this rank's calls: the host does
// not wait for what it puts onto the stream.
//
// A begin has its end, whatever happens: what is under way when a recording begins is not in it,
// and what is when it ends is ended there. An entry whose row is in use (unnamed ones take turns)
// gets another lane of the row.
//
// Any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/flow/observer.h"
#include "cc/observe/trace_file.h"

namespace tfhvd {

// The number in the file of row `row` of a rank; row 0 is the rank's own, the others are tensors'.
// Of all rows of all ranks no two have one number, so that the ranks' files can be laid together.
int64_t TimelineRow(int rank, int64_t row);

class Timeline : public Observer {
 public:
  // `host` names this rank's, for the reader.
  Timeline(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  // Ends a recording that is under way.
  ~Timeline() override;

  // Begins to record. "{rank}" in `path` stands for the rank, so that each writes a file; without,
  // rank 0 alone does, and the others do nothing. `mark_cycles`: with a mark in each place where
  // collectives that were agreed on together begin. An error where a recording is under way or the
  // file cannot be made.
  Status Start(const std::string& path, bool mark_cycles) TFHVD_EXCLUDES(mutex_);

  // Ends the recording and closes the file; nothing happens where there is none. An error where the
  // file is not complete.
  Status Stop() TFHVD_EXCLUDES(mutex_);

  void Submitted(const Entry& entry) override TFHVD_EXCLUDES(mutex_);
  void RankReady(const Key& key, Collective kind, int rank, bool voted) override
      TFHVD_EXCLUDES(mutex_);
  void TallyOver(const Key& key) override TFHVD_EXCLUDES(mutex_);
  void AgreedOn(const std::vector<Agreed>& together) override TFHVD_EXCLUDES(mutex_);
  void WaitedFor(EntryId, int) override {}  // RankReady says it all
  void Begin(const std::vector<EntryId>& entries, const char* carrier, const char* call) override
      TFHVD_EXCLUDES(mutex_);
  void End(const std::vector<EntryId>& entries) override TFHVD_EXCLUDES(mutex_);
  void Done(EntryId entry, const Status& status) override TFHVD_EXCLUDES(mutex_);

 private:
  // A place in a row on which phases nest.
  struct Lane {
    int64_t row = 0;
    int32_t number = 0;
    std::vector<bool> open;  // the phases under way, outermost first: whether each is in the file
  };

  struct Row {
    int64_t number = 0;
    std::vector<bool> taken;  // by lane
    // Entries of this rank that are not agreed on, in the order of their turns.
    std::deque<EntryId> negotiated;
    // Where the others' announcements are while this rank has none itself; by then null.
    std::unique_ptr<Lane> others;
  };

  struct Live {
    Row* row = nullptr;
    Lane lane;
    bool voted = false;   // for: in a locked step
    bool queued = false;  // QUEUE is its innermost phase
  };

  void EndEverything() TFHVD_REQUIRES(mutex_);
  Row* RowOf(const Key& key) TFHVD_REQUIRES(mutex_);
  Lane TakeLane(Row* row, Collective kind) TFHVD_REQUIRES(mutex_);
  void GiveBack(Row* row, Lane* lane, const std::string& args) TFHVD_REQUIRES(mutex_);
  void BeginPhase(Lane* lane, const std::string& name, std::string args = {})
      TFHVD_REQUIRES(mutex_);
  void EndPhase(Lane* lane, std::string args = {}) TFHVD_REQUIRES(mutex_);
  void Agree(const Agreed& agreed) TFHVD_REQUIRES(mutex_);
  bool Push(TraceEvent event, bool must) TFHVD_REQUIRES(mutex_);
  const char* Interned(const std::string& name) TFHVD_REQUIRES(mutex_);

  const int rank_;
  const std::string host_;

  Mutex mutex_;
  bool recording_ TFHVD_GUARDED_BY(mutex_) = false;
  bool mark_cycles_ TFHVD_GUARDED_BY(mutex_) = false;
  std::string path_ TFHVD_GUARDED_BY(mutex_);
  std::set<std::string> names_ TFHVD_GUARDED_BY(mutex_);  // of events; before the file
  std::unique_ptr<TraceFile> file_ TFHVD_GUARDED_BY(mutex_);
  int64_t lost_ TFHVD_GUARDED_BY(mutex_) = 0;
  // Addresses of rows are stable.
  std::unordered_map<Key, Row, KeyHash> rows_ TFHVD_GUARDED_BY(mutex_);
  std::unordered_map<EntryId, Live> live_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
