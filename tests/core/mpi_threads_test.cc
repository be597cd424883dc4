// What tfhvd makes of the threads that an MPI lets call it.
#include "cc/backends/mpi/mpi_threads.h"

#include "cc/backends/mpi/mpi_api.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr int kLess = 0;

TEST(AllThreadsAreEnough) {
  for (const bool ours : {false, true}) {
    std::string warning = "x";
    EXPECT_OK(CheckMpiThreads("Some MPI", ours, kMpiThreadMultiple, &warning));
    EXPECT_EQ(warning, std::string());
  }
}

TEST(OneThreadAtATimeIsEnoughForTfhvdAlone) {
  std::string warning;
  EXPECT_OK(CheckMpiThreads("Some MPI 1.0", true, kMpiThreadSerialized, &warning));
  EXPECT_CONTAINS(warning, "Some MPI 1.0 lets only one thread at a time call it");
  EXPECT_CONTAINS(warning, "nothing else in this program may call MPI");
  EXPECT_CONTAINS(warning, "use an MPI that was built with MPI_THREAD_MULTIPLE");
  EXPECT_ERROR(CheckMpiThreads("Some MPI", false, kMpiThreadSerialized, &warning),
               StatusCode::kFailedPrecondition, "mpi4py.rc.thread_level");
  EXPECT_EQ(warning, std::string());
}

TEST(LessIsRefused) {
  std::string warning;
  EXPECT_ERROR(CheckMpiThreads("Some MPI", true, kLess, &warning), StatusCode::kUnavailable,
               "Some MPI cannot be called from tfhvd's background thread");
  EXPECT_ERROR(CheckMpiThreads("Some MPI", false, kLess, &warning), StatusCode::kFailedPrecondition,
               "without support for several threads");
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
