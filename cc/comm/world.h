// World: how this process reaches its peers; the source of the job's control plane and of host
// communicators. Implemented by each backend that can start a job (inproc: alone or as threads;
// mpi).
//
// One thread at a time. All objects that it opens must be destroyed before Close.
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

// Opens the communicator of some ranks. Collective over `members` (ascending ranks of the job,
// including this one).
using CommunicatorFactory =
    std::function<Status(const std::vector<int>& members, std::unique_ptr<Communicator>* out)>;

class World {
 public:
  virtual ~World() = default;

  virtual const char* name() const = 0;         // "mpi", "inproc"
  virtual std::string description() const = 0;  // "Open MPI v5.0.11", for build_info and messages
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Opens the world of some of these ranks, renumbered in the given order. Called by those ranks
  // with the same list. `out` opens objects for them alone, and must not outlive this World.
  virtual Status OpenPart(const std::vector<int>& ranks, std::unique_ptr<World>* out) = 0;

  // Collective over all ranks. So is the first call of either this function or OpenCommunicator.
  virtual Status OpenControlPlane(std::unique_ptr<ControlPlane>* out) = 0;

  // Collective over `members`: ranks of the world, including this one, in the order of their ranks
  // in the communicator; the same list on all of them.
  virtual Status OpenCommunicator(const std::vector<int>& members,
                                  std::unique_ptr<Communicator>* out) = 0;

  // Sets the monitor that is called while ranks wait for each other in objects opened from here on;
  // not owned. Null: only the world's own limits hold.
  virtual void SetWaitMonitor(WaitMonitor* /*monitor*/) {}

  // Stops accepting connections, and closes those that have not identified themselves: they are
  // peers of a later World of this process, which listens at the same address. REQUIRES: no call of
  // an object that was opened here is in progress.
  virtual void StopListening() {}

  // Ends what this World began (collective). Not called if a peer may be missing: the process then
  // ends without it.
  virtual Status Close() = 0;
};

// Finds the index of the world's own rank in `ranks`, for OpenPart. Returns kInvalidArgument if it
// is not there, or the list does not hold different ranks of the world.
Status FindIndex(const World& world, const std::vector<int>& ranks, int* index);

// Returns all ranks of a world, in order.
std::vector<int> RanksOf(const World& world);

// Finds the world's own rank in a communicator of `members`, for OpenCommunicator. Returns
// kInternal if it is not there.
Status FindMember(const World& world, const std::vector<int>& members, int* index);

}  // namespace tfhvd
