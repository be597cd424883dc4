#include "cc/base/failpoints.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <utility>

#include "cc/base/mutex.h"

namespace tfhvd {
namespace {

constexpr FailpointRow kTakenUp[] = {
    {Failpoint::kRosterRead, "roster_read", "it has read a roster, and goes by the one before"},
    {Failpoint::kEngineAbandoned, "engine_abandoned", "the engine of the old roster has ended"},
    {Failpoint::kMeshOpening, "mesh_opening", "it listens to none of the new roster"},
    {Failpoint::kMeshOpen, "mesh_open", "it listens, and has called nobody"},
    {Failpoint::kConnected, "connected", "it has connected to another rank, and maybe not to all"},
    {Failpoint::kAccepted, "accepted", "another rank has connected to it"},
    {Failpoint::kControlPlaneOpen, "control_plane_open", "ranks can send messages"},
    {Failpoint::kCommunicatorOpen, "communicator_open", "all ranks have met"},
    {Failpoint::kHandshakesExchanged, "handshakes_exchanged", "it knows who shares its host"},
    {Failpoint::kPositionsSending, "positions_sending", "it has not said what it waits for"},
    {Failpoint::kPositionsShared, "positions_shared", "all know what each has and waits for"},
    {Failpoint::kCopyFetched, "copy_fetched", "it is to send a result that it has"},
    {Failpoint::kCopySent, "copy_sent", "a result is sent, and not taken"},
    {Failpoint::kCopiesDone, "copies_done", "all have what one had"},
    {Failpoint::kCountsSharing, "counts_sharing", "one who came has not been told what was done"},
    {Failpoint::kCountsShared, "counts_shared", "one who came has been told, and not noted it"},
    {Failpoint::kReconciled, "reconciled", "all have got even"},
    {Failpoint::kMemoryMade, "memory_made", "it has made its host's memory, and told nobody"},
    {Failpoint::kMemoryMapped, "memory_mapped", "it has mapped that, and others may not have"},
    {Failpoint::kTransportSelected, "transport_selected", "there are all ways to talk"},
    {Failpoint::kEngineMade, "engine_made", "the new engine runs"},
    {Failpoint::kEngineTaken, "engine_taken", "the new engine is the job's, and has no entries"},
    {Failpoint::kEntryResubmitted, "entry_resubmitted", "it has some of the entries that waited"},
    {Failpoint::kEntriesTaken, "entries_taken", "it has all of them, and takes others"},
    {Failpoint::kMembersNoted, "members_noted", "the program is about to be told"},
};

constexpr FailpointRow kOfCollectives[] = {
    {Failpoint::kAnnounced, "announced", "it has told rank 0 what it is ready for"},
    {Failpoint::kDecisionSent, "decision_sent", "rank 0 has told some what is ready"},
    {Failpoint::kDecisionTaken, "decision_taken", "it knows that, and has not begun"},
    {Failpoint::kVoteCast, "vote_cast", "it has voted for a bucket, and others may not have"},
    {Failpoint::kBucketAgreed, "bucket_agreed", "all have, and it has not begun"},
    {Failpoint::kCollectiveBegins, "collective_begins", "it brings its data now"},
    {Failpoint::kDataSent, "data_sent", "it has given data to a connection"},
    {Failpoint::kValuesPosted, "values_posted", "its values are in shared memory"},
    {Failpoint::kResultsPosted, "results_posted", "its part of a large result is there"},
    {Failpoint::kHostReduced, "host_reduced", "its host is reduced, and has sent nothing"},
    {Failpoint::kCollectiveWritten, "collective_written", "it has the result, and keeps no copy"},
    {Failpoint::kResultKept, "result_kept", "it keeps that, and has told nobody"},
    {Failpoint::kCollectiveDone, "collective_done", "the program has been told"},
};

constexpr FailpointRow kOfCommits[] = {
    {Failpoint::kCommitBegins, "commit_begins", "the program commits"},
    {Failpoint::kCommitAgreed, "commit_agreed", "all do, and this rank has not saved"},
    {Failpoint::kCommitSaved, "commit_saved", "this rank has saved, and others may not have"},
    {Failpoint::kStateRestored, "state_restored", "it has the last commit's state, others may not"},
    {Failpoint::kWentBack, "went_back", "all have it, and go on from there"},
};

constexpr FailpointRow kOfAdmissions[] = {
    {Failpoint::kReadySaid, "ready_said", "it has told the launcher that it is there"},
    {Failpoint::kTrainingSaid, "training_said", "the launcher knows what was done before `fit`"},
    {Failpoint::kAdmissionBegins, "admission_begins", "all know that others wait"},
    {Failpoint::kAdmissionAgreed, "admission_agreed", "nothing is under way any more"},
    {Failpoint::kLetInAsked, "let_in_asked", "rank 0 has asked the launcher to let them in"},
    {Failpoint::kLetInDone, "let_in_done", "they are let in, and have no state"},
    {Failpoint::kAdmitted, "admitted", "one who came has met all, and told nobody"},
    {Failpoint::kJoinedSaid, "joined_said", "the launcher knows that"},
    {Failpoint::kStateReset, "state_reset", "the reset callbacks have been called"},
    {Failpoint::kStateSyncing, "state_syncing", "rank 0's state is to be sent"},
    {Failpoint::kStateSynced, "state_synced", "it has rank 0's state, and others may not have"},
    {Failpoint::kFitLetsIn, "fit_lets_in", "`fit` lets others in between two epochs"},
    {Failpoint::kFitAgreesAnew, "fit_agrees_anew", "they are in, and know of no epoch"},
    {Failpoint::kFitBegunAnew, "fit_begun_anew", "they have rank 0's weights and epoch"},
};

constexpr FailpointRow kOfTheEnd[] = {
    {Failpoint::kLeaving, "leaving", "it has reached the end of its program"},
    {Failpoint::kLeft, "left", "all have, and the engine has ended"},
    {Failpoint::kClosing, "closing", "its connections are about to be closed"},
};

struct Trap {
  Failpoint point = Failpoint::kRosterRead;
  int left = 1;  // hits that are left until the signal
  Failpoint earlier = Failpoint::kRosterRead;
  int earlier_left = 0;  // hits of `earlier` that are left until hits of `point` count
  int signal = SIGKILL;
};

// Removes the last `mark` and the number after it from the text; returns the number, 1 if there is
// no mark.
std::optional<int> TakeNumber(char mark, std::string* text) {
  const size_t at = text->rfind(mark);
  if (at == std::string::npos) return 1;
  const std::string digits = text->substr(at + 1);
  text->resize(at);
  const bool whole =
      !digits.empty() && digits.size() < 10 &&
      std::all_of(
          digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return whole ? std::optional<int>(std::atoi(digits.c_str())) : std::nullopt;
}

// Parses "PLACE#NTH".
bool ReadPlace(std::string text, Failpoint* point, int* nth) {
  const std::optional<int> number = TakeNumber('#', &text);
  const FailpointRow* const row = FindFailpoint(text);
  if (row == nullptr || number.value_or(0) < 1) return false;
  *point = row->point;
  *nth = *number;
  return true;
}

// Parses one part between commas.
bool ReadTrap(std::string text, Trap* trap, int* rank) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const std::string deed = text.substr(equals + 1);
    if (deed != "kill" && deed != "stop") return false;
    if (deed == "stop") trap->signal = SIGSTOP;
    text.resize(equals);
  }
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    if (!ReadPlace(text.substr(0, colon), &trap->earlier, &trap->earlier_left)) return false;
    text.erase(0, colon + 1);
  }
  const size_t at = text.find('@');
  if (at == std::string::npos) return false;
  const size_t hash = text.find('#', at);
  std::string place = text.substr(0, at);
  if (hash != std::string::npos) {
    place += text.substr(hash);
    text.resize(hash);
  }
  const std::optional<int> number = TakeNumber('@', &text);
  *rank = number.value_or(-1);
  return number.has_value() && ReadPlace(place, &trap->point, &trap->left);
}

}  // namespace

const std::vector<FailpointRow>& AllFailpoints() {
  static const std::vector<FailpointRow> rows = [] {
    std::vector<FailpointRow> all(std::begin(kTakenUp), std::end(kTakenUp));
    all.insert(all.end(), std::begin(kOfCollectives), std::end(kOfCollectives));
    all.insert(all.end(), std::begin(kOfCommits), std::end(kOfCommits));
    all.insert(all.end(), std::begin(kOfAdmissions), std::end(kOfAdmissions));
    all.insert(all.end(), std::begin(kOfTheEnd), std::end(kOfTheEnd));
    return all;
  }();
  return rows;
}

const FailpointRow* FindFailpoint(const std::string& name) {
  for (const FailpointRow& row : AllFailpoints()) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

class Failpoints::Armed {
 public:
  explicit Armed(std::vector<Trap> traps) : traps_(std::move(traps)) {}

  void Hit(Failpoint point) TFHVD_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    for (Trap& trap : traps_) {
      if (trap.earlier_left > 0) {
        if (point == trap.earlier) --trap.earlier_left;
      } else if (point == trap.point && --trap.left == 0) {
        Spring(trap);
      }
    }
  }

 private:
  // A test recognizes by this line that the process has reached the failpoint.
  static void Spring(const Trap& trap) {
    const std::string line = std::string("tfhvd: failpoint ") +
                             AllFailpoints()[static_cast<size_t>(trap.point)].name + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
    (void)kill(getpid(), trap.signal);
  }

  Mutex mutex_;
  std::vector<Trap> traps_ TFHVD_GUARDED_BY(mutex_);
};

Status Failpoints::Parse(const std::string& text, int rank, Failpoints* out) {
  std::vector<Trap> traps;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    Trap trap;
    int of = -1;
    if (!ReadTrap(part, &trap, &of)) {
      return Status::InvalidArgument(
          "TFHVD_TEST_FAILPOINTS has a part that names no failpoint. Received: '" + part +
          "'. Expected: PLACE@RANK, as cc/base/failpoints.h says.");
    }
    if (of == rank) traps.push_back(trap);
    begin = end + 1;
  }
  out->armed_ = traps.empty() ? nullptr : std::make_shared<Armed>(std::move(traps));
  return Status::Ok();
}

void Failpoints::HitArmed(Failpoint point) const { armed_->Hit(point); }

}  // namespace tfhvd
