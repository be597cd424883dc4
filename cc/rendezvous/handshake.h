// Handshake: the messages that ranks exchange before the engine starts, so that all use the same
// settings.
#pragma once

#include <string>
#include <vector>

#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/comm/topology.h"
#include "cc/rendezvous/versions.h"

namespace tfhvd {

// What a rank's program says about itself to the other ranks.
struct Identity {
  Versions versions;
  std::string watch_address;  // see Topology
};

// One rank's message of the handshake.
struct Handshake {
  int protocol = 0;
  std::string host;     // used in texts for people
  std::string machine;  // equal for ranks of one host and boot
  int64_t fusion_threshold = 0;
  int64_t alone_bytes = 0;
  CpuOperations cpu_operations = CpuOperations::kAuto;
  double sparse_density = 1.0;
  OnNotFinite on_not_finite = OnNotFinite::kWarn;
  OnOutlier on_outlier = OnOutlier::kWarn;
  int local_process = -1;  // see Topology
  int pid = 0;
  std::string pid_namespace;  // equal if the pids of two processes mean the same
  Identity identity;
  bool float32_across_hosts = false;
};

// Decoding a handshake of another protocol fills the fields that exist: protocol, host and versions
// keep their places.
std::string EncodeHandshake(const Handshake& handshake);
Status DecodeHandshake(const std::string& text, Handshake* handshake);

// Returns the handshake of this process.
Handshake MakeHandshake(const Config& config, const Identity& identity = {});

// Collective. The handshakes of all ranks give the topology. Rank 0's settings replace those of
// `config` that must be equal on all ranks. Returns kFailedPrecondition on all ranks if their
// versions differ.
Status ExchangeHandshakes(Communicator* communicator, Config* config, Topology* topology,
                          const Identity& identity = {});

}  // namespace tfhvd
