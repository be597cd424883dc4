#include "cc/rendezvous/handshake.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "cc/base/files.h"
#include "cc/comm/gather.h"

namespace tfhvd {
namespace {

// Incremented whenever the messages of the negotiation or the algorithms of a backend change.
constexpr int kProtocol = 13;

std::string HostName() {
  char name[256] = {0};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return name;
}

// Returns "" if it is unknown.
std::string PidNamespace() {
  char target[64];
  const ssize_t length = readlink("/proc/self/ns/pid", target, sizeof target);
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "";
}

bool CanSee(const Handshake& mine, const Handshake& other) {
  return mine.machine == other.machine && !mine.pid_namespace.empty() &&
         mine.pid_namespace == other.pid_namespace;
}

}  // namespace

std::string EncodeHandshake(const Handshake& handshake) {
  char density[32];
  std::snprintf(density, sizeof density, "%.17g", handshake.sparse_density);  // all digits
  return std::to_string(handshake.protocol) + "\n" + handshake.host + "\n" + handshake.machine +
         "\n" + std::to_string(handshake.fusion_threshold) + "\n" +
         std::to_string(handshake.alone_bytes) + "\n" +
         std::to_string(static_cast<int>(handshake.cpu_operations)) + "\n" + density + "\n" +
         std::to_string(static_cast<int>(handshake.on_not_finite)) + "\n" +
         std::to_string(static_cast<int>(handshake.on_outlier)) + "\n" +
         std::to_string(handshake.local_process) + "\n" + std::to_string(handshake.pid) + "\n" +
         handshake.pid_namespace + "\n" + handshake.identity.versions.tfhvd + "\n" +
         handshake.identity.versions.tensorflow + "\n" + handshake.identity.watch_address + "\n" +
         (handshake.float32_across_hosts ? "1" : "0") + "\n";
}

Status DecodeHandshake(const std::string& text, Handshake* handshake) {
  std::istringstream in(text);
  std::string protocol;
  std::string threshold;
  std::string alone;
  std::string operations;
  std::string density;
  std::string on_not_finite;
  std::string on_outlier;
  std::string local_process;
  std::string pid;
  std::string float32;
  bool whole = std::getline(in, protocol) && std::getline(in, handshake->host);
  handshake->protocol = std::atoi(protocol.c_str());
  const bool other = whole && handshake->protocol != kProtocol;
  whole = whole && std::getline(in, handshake->machine) && std::getline(in, threshold) &&
          std::getline(in, alone) && std::getline(in, operations) && std::getline(in, density) &&
          std::getline(in, on_not_finite) && std::getline(in, on_outlier) &&
          std::getline(in, local_process) && std::getline(in, pid) &&
          std::getline(in, handshake->pid_namespace) &&
          std::getline(in, handshake->identity.versions.tfhvd) &&
          std::getline(in, handshake->identity.versions.tensorflow) &&
          std::getline(in, handshake->identity.watch_address) && std::getline(in, float32);
  if (!whole && !other) {
    return Status::Internal("a rank sent a malformed handshake: '" + text + "'");
  }
  handshake->fusion_threshold = std::atoll(threshold.c_str());
  handshake->alone_bytes = std::atoll(alone.c_str());
  handshake->cpu_operations = static_cast<CpuOperations>(std::atoi(operations.c_str()));
  handshake->sparse_density = std::strtod(density.c_str(), nullptr);
  handshake->on_not_finite = static_cast<OnNotFinite>(std::atoi(on_not_finite.c_str()));
  handshake->on_outlier = static_cast<OnOutlier>(std::atoi(on_outlier.c_str()));
  handshake->local_process = std::atoi(local_process.c_str());
  handshake->pid = std::atoi(pid.c_str());
  handshake->float32_across_hosts = float32 == "1";
  return Status::Ok();
}

Handshake MakeHandshake(const Config& config, const Identity& identity) {
  Handshake handshake;
  handshake.protocol = kProtocol;
  handshake.host = config.test_host.empty() ? HostName() : config.test_host;
  std::string boot;
  (void)ReadFile("/proc/sys/kernel/random/boot_id", &boot);
  boot = boot.substr(0, boot.find('\n'));
  handshake.machine = handshake.host + " " + boot;
  handshake.fusion_threshold = config.fusion_threshold;
  handshake.alone_bytes = config.alone_bytes;
  handshake.cpu_operations = config.cpu_operations;
  handshake.sparse_density = config.sparse_density;
  handshake.on_not_finite = config.on_not_finite;
  handshake.on_outlier = config.on_outlier;
  handshake.local_process = ReadLaunchHints().local_process;
  handshake.pid = static_cast<int>(getpid());
  handshake.pid_namespace = PidNamespace();
  handshake.identity = identity;
  handshake.float32_across_hosts = config.float32_across_hosts;
  return handshake;
}

Status ExchangeHandshakes(Communicator* communicator, Config* config, Topology* topology,
                          const Identity& identity) {
  const Handshake own = MakeHandshake(*config, identity);
  std::vector<std::string> texts;
  TFHVD_RETURN_IF_ERROR(GatherTexts(communicator, EncodeHandshake(own), &texts));

  std::vector<std::string> hosts;
  std::vector<std::string> machines;
  std::vector<int> local_processes;
  std::vector<int> pids;
  std::vector<int> protocols;
  std::vector<Versions> every;
  std::vector<std::string> watch_addresses;
  for (const std::string& text : texts) {
    Handshake handshake;
    TFHVD_RETURN_IF_ERROR(DecodeHandshake(text, &handshake));
    if (hosts.empty()) {  // rank 0's settings hold for all ranks
      config->fusion_threshold = handshake.fusion_threshold;
      config->alone_bytes = handshake.alone_bytes;
      config->cpu_operations = handshake.cpu_operations;
      config->sparse_density = handshake.sparse_density;
      config->on_not_finite = handshake.on_not_finite;
      config->on_outlier = handshake.on_outlier;
      config->float32_across_hosts = handshake.float32_across_hosts;
    }
    hosts.push_back(handshake.host);
    machines.push_back(handshake.machine);
    local_processes.push_back(handshake.local_process);
    pids.push_back(CanSee(own, handshake) ? handshake.pid : 0);
    protocols.push_back(handshake.protocol);
    every.push_back(handshake.identity.versions);
    watch_addresses.push_back(handshake.identity.watch_address);
  }
  TFHVD_RETURN_IF_ERROR(CheckVersions(protocols, every, hosts));
  *topology = MakeTopology(communicator->rank(), std::move(machines));
  topology->hosts = std::move(hosts);
  topology->local_processes = std::move(local_processes);
  topology->pids = std::move(pids);
  topology->watch_addresses = std::move(watch_addresses);
  return Status::Ok();
}

}  // namespace tfhvd
