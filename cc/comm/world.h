// World: how this process meets its peers; the source of the job's control plane and of host
// communicators. A backend that can start a job implements it (inproc: alone or as threads; mpi).
//
// One thread at a time. Everything that it opens must be destroyed before Close.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/control_plane.h"
#include "cc/comm/wait_monitor.h"

namespace tfhvd {

// Opens the communicator of some ranks: collective over `members` (ascending ranks of the job, this
// one among them).
using CommunicatorFactory =
    std::function<Status(const std::vector<int>& members, std::unique_ptr<Communicator>* out)>;

class World {
 public:
  virtual ~World() = default;

  virtual const char* name() const = 0;         // "mpi", "inproc"
  virtual std::string description() const = 0;  // "Open MPI v5.0.11", for build_info and messages
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The job of some of these ranks, numbered anew in the order given. Called by those ranks, with
  // the same list; what it opens is theirs alone. Must not outlive this World.
  virtual Status OpenPart(const std::vector<int>& ranks, std::unique_ptr<World>* out) = 0;

  // Collective over all ranks. So is whichever of this and OpenCommunicator is called first.
  virtual Status OpenControlPlane(std::unique_ptr<ControlPlane>* out) = 0;

  // Collective over `members`: ranks of the world, this one among them, in the order of their ranks
  // in the communicator; the same on all of them.
  virtual Status OpenCommunicator(const std::vector<int>& members,
                                  std::unique_ptr<Communicator>* out) = 0;

  // Who is asked while ranks wait for each other in what is opened from here on; not owned, null:
  // the world's own limits alone.
  virtual void SetWaitMonitor(WaitMonitor* /*monitor*/) {}

  // Takes nobody in any more, and sends away who has come and has not said who it is: a peer of a
  // later World of this process, which listens at the same place. REQUIRES: no call of what was
  // opened here is under way.
  virtual void StopListening() {}

  // Ends what this World began (collective). Not called where a peer may be missing: the process
  // then ends without it.
  virtual Status Close() = 0;
};

// The index of the world's own rank in `ranks`, for OpenPart: kInvalidArgument where it has none,
// or the list is not one of different ranks of the world.
Status FindIndex(const World& world, const std::vector<int>& ranks, int* index);

// All ranks of a world, in order.
std::vector<int> RanksOf(const World& world);

// The world's own rank in a communicator of `members`, for OpenCommunicator: kInternal where it has
// none.
Status FindMember(const World& world, const std::vector<int>& members, int* index);

}  // namespace tfhvd
