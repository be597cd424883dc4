// Timeline: records the phases of every entry into a TraceFile, as Horovod's timeline does.
//
// A row for each tensor, or group of tensors, with the phases
//
//   NEGOTIATE_ALLREDUCE                 from this rank's call, or the first other's, to the
//                                       agreement; a tick for each rank as it becomes ready
//   ALLREDUCE                           from the agreement to the result
//     QUEUE                             entries of earlier agreements are executed
//     MEMCPY_IN_FUSION_BUFFER
//     SHM_ALLREDUCE, MPI_BCAST, ...     the call: its transport, and its name
//     MEMCPY_OUT_FUSION_BUFFER
//
// (ALLGATHER and so on in the same way.) In a locked step the ranks vote without messages: then the
// end of the first phase says "locked", and the ticks are the votes, which every rank sees. Only
// rank 0 sees announcements. Phases on an accelerator are those of this rank's calls: the host does
// not wait for the work on the stream.
//
// Every begin has an end: a recording leaves out phases that are open when it begins, and ends
// those that are open when it ends. An entry whose row is in use (unnamed entries share one) gets
// another lane of the row.
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

// Returns the number in the file of row `row` of a rank. Row 0 is for the rank itself, the others
// are for tensors. No two rows of any ranks share a number, so that the ranks' files can be merged.
int64_t TimelineRow(int rank, int64_t row);

class Timeline : public Observer {
 public:
  // `host` is the name of this rank's host, for people.
  Timeline(int rank, std::string host) : rank_(rank), host_(std::move(host)) {}

  // Ends a recording in progress.
  ~Timeline() override;

  // Begins to record. In `path`, "{rank}" means the rank, so that each rank writes a file; without
  // it, only rank 0 does, and the others do nothing. `mark_cycles`: adds a mark at each place where
  // collectives of one agreement begin. Returns an error if a recording is in progress or the file
  // cannot be made.
  Status Start(const std::string& path, bool mark_cycles) TFHVD_EXCLUDES(mutex_);

  // Ends the recording and closes the file; does nothing if there is none. Returns an error if the
  // file is incomplete.
  Status Stop() TFHVD_EXCLUDES(mutex_);

  void Submitted(const Entry& entry) override TFHVD_EXCLUDES(mutex_);
  void RankReady(const Key& key, Collective kind, int rank, bool voted) override
      TFHVD_EXCLUDES(mutex_);
  void TallyOver(const Key& key) override TFHVD_EXCLUDES(mutex_);
  void AgreedOn(const std::vector<Agreed>& together) override TFHVD_EXCLUDES(mutex_);
  void WaitedFor(EntryId, int) override {}  // RankReady has all the information
  void Begin(const std::vector<EntryId>& entries, const char* carrier, const char* call) override
      TFHVD_EXCLUDES(mutex_);
  void End(const std::vector<EntryId>& entries) override TFHVD_EXCLUDES(mutex_);
  void Done(EntryId entry, const Status& status) override TFHVD_EXCLUDES(mutex_);

 private:
  // A part of a row in which phases nest.
  struct Lane {
    int64_t row = 0;
    int32_t number = 0;
    std::vector<bool> open;  // the open phases, outermost first: whether each is in the file
  };

  struct Row {
    int64_t number = 0;
    std::vector<bool> taken;  // by lane
    // Entries of this rank that are not agreed on, in their order.
    std::deque<EntryId> negotiated;
    // The lane of the others' announcements while this rank has none; null otherwise.
    std::unique_ptr<Lane> others;
  };

  struct Live {
    Row* row = nullptr;
    Lane lane;
    bool voted = false;   // in a locked step
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
  std::set<std::string> names_ TFHVD_GUARDED_BY(mutex_);  // of events; must outlive the file
  std::unique_ptr<TraceFile> file_ TFHVD_GUARDED_BY(mutex_);
  int64_t lost_ TFHVD_GUARDED_BY(mutex_) = 0;
  // Addresses of rows are stable.
  std::unordered_map<Key, Row, KeyHash> rows_ TFHVD_GUARDED_BY(mutex_);
  std::unordered_map<EntryId, Live> live_ TFHVD_GUARDED_BY(mutex_);
};

}  // namespace tfhvd
