// Handshake: what ranks tell each other before the engine starts, so that all run by the same
// rules.
#pragma once

#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/topology.h"
#include "cc/rendezvous/versions.h"

namespace tfhvd {

// What a rank's program has to say to the others.
struct Identity {
  Versions versions;
  std::string watch_address;  // see Topology
};

// One rank's message of the handshake.
struct Handshake {
  int protocol = 0;
  std::string host;     // for messages
  std::string machine;  // equal for ranks of one host and boot
  int64_t fusion_threshold = 0;
  int64_t alone_bytes = 0;
  CpuOperations cpu_operations = CpuOperations::kAuto;
  double sparse_density = 1.0;
  OnNotFinite on_not_finite = OnNotFinite::kWarn;
  OnOutlier on_outlier = OnOutlier::kWarn;
  int local_process = -1;  // see Topology
  int pid = 0;
  std::string pid_namespace;  // equal where the pids of one mean the same to the other
  Identity identity;
  bool float32_across_hosts = false;
};

// The fields of another protocol are filled as far as they are there: protocol, host and versions
// keep their places.
std::string EncodeHandshake(const Handshake& handshake);
Status DecodeHandshake(const std::string& text, Handshake* handshake);

// This process's own.
Handshake MakeHandshake(const Config& config, const Identity& identity = {});

// Collective: the handshakes of all ranks give the topology; rank 0's settings replace `config`'s
// where they must be equal on all ranks. kFailedPrecondition, on all ranks, where they have not the
// same versions.
Status ExchangeHandshakes(Communicator* communicator, Config* config, Topology* topology,
                          const Identity& identity = {});

}  // namespace tfhvd
