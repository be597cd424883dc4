// Failpoints: the places at which a test can have this process end, one for each step from one
// state of an elastic job to the next. A value that its owner hands down, with the settings; there
// is no global one. A copy counts with the one that it is made of.
//
// TFHVD_TEST_FAILPOINTS, for tests of tfhvd itself: what is to happen, with commas between.
//
//   PLACE@RANK           rank RANK is killed (SIGKILL) when it first comes to PLACE
//   PLACE@RANK#3         when it comes there for the third time
//   EARLIER#2:PLACE@RANK times at PLACE count once it has come to EARLIER for the second time
//   PLACE@RANK=stop      it is stopped (SIGSTOP) there
//
// RANK is the number that the launcher has started a process with, which it keeps. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace tfhvd {

enum class Failpoint {
  // A loss, or an admission, is taken up.
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

// One row of the table of them.
struct FailpointRow {
  Failpoint point;
  const char* name;
  const char* meaning;  // where a process is then
};

// By number.
const std::vector<FailpointRow>& AllFailpoints();

// Null where there is none of this name.
const FailpointRow* FindFailpoint(const std::string& name);

class Failpoints {
 public:
  Failpoints() = default;  // nothing happens anywhere

  // `text`: as above. `rank`: of this process. InvalidArgument where the text is none of the kind.
  static Status Parse(const std::string& text, int rank, Failpoints* out);

  // This process comes to a place. Costs a look at a pointer where no test has named one.
  void Pass(Failpoint point) const {
    if (armed_ != nullptr) PassArmed(point);
  }

 private:
  class Armed;
  void PassArmed(Failpoint point) const;

  std::shared_ptr<Armed> armed_;  // null: no failpoint of this rank is named
};

}  // namespace tfhvd
