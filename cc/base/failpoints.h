// Failpoints: places at which a test can make this process end, one for each transition between
// states of an elastic job. A value that its owner hands down with the settings; there is no global
// one. Copies share their counts.
//
// TFHVD_TEST_FAILPOINTS, for tests of tfhvd itself: a list of actions, separated by commas.
//
//   PLACE@RANK           rank RANK is killed (SIGKILL) when it first reaches PLACE
//   PLACE@RANK#3         when it reaches PLACE for the third time
//   EARLIER#2:PLACE@RANK hits of PLACE count only after it has reached EARLIER for the second time
//   PLACE@RANK=stop      it is stopped (SIGSTOP) there
//
// RANK is the number that the launcher gave to a process, which it keeps. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

enum class Failpoint {
  // A failure or an admission: the new generation.
  kRosterRead,
  kEngineAbandoned,
  kMeshOpening,
  kMeshOpen,
  kConnected,
  kAccepted,
  kControlPlaneOpen,
  kCommunicatorOpen,
  kHandshakesExchanged,
  kPositionsSending,
  kPositionsShared,
  kCopyFetched,
  kCopySent,
  kCopiesDone,
  kCountsSharing,
  kCountsShared,
  kReconciled,
  kMemoryMade,
  kMemoryMapped,
  kTransportSelected,
  kEngineMade,
  kEngineTaken,
  kEntryResubmitted,
  kEntriesTaken,
  kMembersNoted,
  // A collective.
  kAnnounced,
  kDecisionSent,
  kDecisionTaken,
  kVoteCast,
  kBucketAgreed,
  kCollectiveBegins,
  kDataSent,
  kValuesPosted,
  kResultsPosted,
  kHostReduced,
  kCollectiveWritten,
  kResultKept,
  kCollectiveDone,
  // A commit.
  kCommitBegins,
  kCommitAgreed,
  kCommitSaved,
  kStateRestored,
  kWentBack,
  // An admission.
  kReadySaid,
  kTrainingSaid,
  kAdmissionBegins,
  kAdmissionAgreed,
  kLetInAsked,
  kLetInDone,
  kAdmitted,
  kJoinedSaid,
  kStateReset,
  kStateSyncing,
  kStateSynced,
  kFitLetsIn,
  kFitAgreesAnew,
  kFitBegunAnew,
  // The end of the program.
  kLeaving,
  kLeft,
  kClosing,
};

// One row of the table of failpoints.
struct FailpointRow {
  Failpoint point;
  const char* name;
  const char* meaning;  // what the process is doing there
};

// All failpoints, in the order of the enumeration.
const std::vector<FailpointRow>& AllFailpoints();

// Returns null if there is none of this name.
const FailpointRow* FindFailpoint(const std::string& name);

class Failpoints {
 public:
  Failpoints() = default;  // no action anywhere

  // Parses `text`, in the form above, for the process with number `rank`. Returns InvalidArgument
  // if the form is wrong.
  static Status Parse(const std::string& text, int rank, Failpoints* out);

  // Records that this process has reached a place. Costs one comparison of a pointer if no test has
  // named a failpoint of this rank.
  void Hit(Failpoint point) const {
    if (armed_ != nullptr) HitArmed(point);
  }

 private:
  class Armed;
  void HitArmed(Failpoint point) const;

  std::shared_ptr<Armed> armed_;  // null: no failpoint of this rank is named
};

}  // namespace tfhvd
