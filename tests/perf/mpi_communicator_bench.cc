// Prints how long collectives of tfhvd's MPI backend take, beside those of MPI itself. From the
// root of the source tree, after `python setup.py build_core_tests`:
//
//   mpirun -np 2 build/core_tests/mpi_communicator_bench
//
// Times are of the slowest rank: the least and the median of the repetitions, in microseconds.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/backends/mpi/mpi_world.h"
#include "cc/base/config.h"

namespace tfhvd {
namespace {

struct Times {
  double least = 0.0;  // microseconds
  double median = 0.0;
};

Times Measure(int repetitions, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repetitions + 3; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    call();
    double seconds = MPI_Wtime() - begin;
    double slowest = 0.0;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i >= 3) times.push_back(slowest * 1e6);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void Print(int rank, const char* what, int64_t bytes, const Times& ours, const Times& mpi) {
  if (rank != 0) return;
  std::printf("%-10s %10lld  %10.1f %10.1f  %10.1f %10.1f  %6.2f\n", what,
              static_cast<long long>(bytes), ours.least, ours.median, mpi.least, mpi.median,
              ours.median / mpi.median);
  std::fflush(stdout);
}

void Compare(Communicator* comm) {
  const int rank = comm->rank();
  if (rank == 0) {
    std::printf("%d ranks\n%-10s %10s  %10s %10s  %10s %10s  %6s\n", comm->size(), "", "bytes",
                "ours least", "median", "MPI least", "median", "ratio");
  }
  for (const int64_t bytes : {4, 1 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20}) {
    const int count = static_cast<int>(bytes / 4);
    const int repetitions = bytes < (1 << 20) ? 1000 : bytes < (32 << 20) ? 100 : 20;
    std::vector<float> in(static_cast<size_t>(count), 1.0f);
    std::vector<float> out(static_cast<size_t>(count));
    const Times ours = Measure(repetitions, [&] {
      Must(comm->AllReduce(in.data(), out.data(), count, DType::kFloat32, Reduction()));
    });
    const Times mpi = Measure(repetitions, [&] {
      MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    Print(rank, "allreduce", bytes, ours, mpi);
    const Times our_broadcast =
        Measure(repetitions, [&] { Must(comm->Broadcast(out.data(), bytes, 0)); });
    const Times mpi_broadcast =
        Measure(repetitions, [&] { MPI_Bcast(out.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); });
    Print(rank, "broadcast", bytes, our_broadcast, mpi_broadcast);
    std::vector<float> all(static_cast<size_t>(count) * static_cast<size_t>(comm->size()));
    const std::vector<int64_t> sizes(static_cast<size_t>(comm->size()), bytes);
    const Times our_gather =
        Measure(repetitions, [&] { Must(comm->AllGather(in.data(), all.data(), sizes)); });
    const Times mpi_gather = Measure(repetitions, [&] {
      MPI_Allgather(in.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
    });
    Print(rank, "allgather", bytes, our_gather, mpi_gather);
  }
}

}  // namespace
}  // namespace tfhvd

int main() {
  tfhvd::Config config;
  std::unique_ptr<tfhvd::World> world;
  tfhvd::Must(tfhvd::ConnectMpiWorld(config, tfhvd::ReadLaunchHints(), &world));
  std::vector<int> everyone;
  for (int r = 0; r < world->size(); ++r) everyone.push_back(r);
  {
    std::unique_ptr<tfhvd::Communicator> comm;
    tfhvd::Must(world->OpenCommunicator(everyone, &comm));
    tfhvd::Compare(comm.get());
  }
  tfhvd::Must(world->Close());
  return 0;
}
